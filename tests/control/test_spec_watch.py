"""What a driver does every few seconds: it goes on whatever becomes of one turn of it."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from tidemark.control.driver.spec_watch import SpecWatch, polling
from tidemark.errors import StoreError
from tidemark.state.store.store import JobStore


class Watch(SpecWatch):
    """Counts its looks, of which each fails in another way."""

    def __init__(self, folder: Path) -> None:
        super().__init__(JobStore.open(str(folder)), "fares", 1, exit_now=lambda: None)
        self.errors = [
            StoreError("the store is away", fix="wait"),
            OSError("no room"),
            ValueError("/ has an empty name"),
            KeyError("ready"),
        ]
        self.looked_after_all = threading.Event()

    def poll(self) -> None:
        if not self.errors:
            self.looked_after_all.set()
            return
        raise self.errors.pop()


def test_looks_go_on_whatever_goes_wrong_in_one_or_beside_it(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    watch, beside = Watch(tmp_path), threading.Event()

    def fails() -> None:
        raise ZeroDivisionError("password=hunter2")

    with polling(watch, fails, beside.set, seconds=0.001):
        assert watch.looked_after_all.wait(10), "the thread has ended"
        assert beside.wait(10)
    told = [record for record in caplog.records if "ZeroDivisionError" in record.getMessage()]
    assert len(told) > 1
    assert [record.exc_info is not None for record in told] == [True] + [False] * (len(told) - 1), "where it comes from is told once"
    assert "in 0.001 s: ZeroDivisionError: password=<hidden>" in told[0].getMessage()
    assert "hunter2" not in caplog.text
