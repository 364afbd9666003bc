"""What a driver has to do without does not end its job: it is said once, shown as long as it is so, and tried again."""

from __future__ import annotations

import logging
import socket
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.control.worlds import World
from tidemark.cli.show.view_text import view_text
from tidemark.control.driver.driver_metrics import METRICS_VARIABLE, DriverMetrics, driver_metrics
from tidemark.control.model.driver_warnings import delete_warning, read_warning, write_warning
from tidemark.control.model.records import DriverWarning
from tidemark.control.view.view_builder import view_of
from tidemark.errors import StoreError
from tidemark.state.store.store import JobStore

GOLDEN = Path(__file__).parent / "golden" / "driver-warning-1.json"
WARNING = DriverWarning(1, 1_700_000_000_000, "it runs without metrics: no free port")


@pytest.fixture
def world() -> World:
    found = World()
    found.submit()
    found.run(found.reconciler(), 10)
    return found


@pytest.fixture
def taken() -> Iterator[socket.socket]:
    """A port that another program listens on."""
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        yield other


def shown(world: World) -> str:
    return view_of(world.observe(), world.clock.now_ms()).warning


def test_a_port_that_is_taken_is_told_once_and_taken_when_it_is_free(
    world: World, taken: socket.socket, caplog: pytest.LogCaptureFixture
) -> None:
    port = taken.getsockname()[1]
    metrics = DriverMetrics(world.store, "fares", 1, str(port), clock=world.clock)
    caplog.set_level(logging.INFO, "tidemark")
    try:
        for _ in range(3):
            metrics.ensure_served()
        text = shown(world)
        assert text.startswith(f"it runs without metrics: [TM600] metrics cannot be served on 127.0.0.1:{port}: ")
        assert f"  warning: {text}" in view_text(view_of(world.observe(), world.clock.now_ms()))
        assert [record.getMessage() for record in caplog.records] == [text]
        assert world.run(world.reconciler(), 10).acted == (), "the job runs on"
        taken.close()
        metrics.ensure_served()
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics") as page:
            assert b'tidemark_epochs_total{job="fares"' in page.read()
    finally:
        metrics.close()
    assert shown(world) == ""
    assert caplog.records[-1].getMessage() == f"metrics at http://127.0.0.1:{port}/metrics"


def test_a_store_that_does_not_take_the_warning_gets_it_later(world: World, taken: socket.socket, monkeypatch: pytest.MonkeyPatch) -> None:
    down = [True]

    def put(store: JobStore, path: str, data: bytes) -> None:
        if down[0]:
            raise StoreError("no route to host", fix="wait")
        written(store, path, data)

    written = JobStore.put
    monkeypatch.setattr(JobStore, "put", put)
    monkeypatch.setenv(METRICS_VARIABLE, str(taken.getsockname()[1]))
    with driver_metrics(world.store, "fares", 1) as beside:
        assert shown(world) == ""
        (again,) = beside
        with pytest.raises(StoreError):
            again()
        down[0] = False
        again()
        assert "cannot be served" in shown(world)
    monkeypatch.setenv(METRICS_VARIABLE, "nowhere")
    with driver_metrics(world.store, "fares", 1):
        assert "'nowhere' is not a valid address" in shown(world)
    monkeypatch.delenv(METRICS_VARIABLE)
    with driver_metrics(world.store, "fares", 1) as beside:
        assert beside == ()


def test_a_warning_belongs_to_its_attempt(world: World) -> None:
    write_warning(world.store, "fares", WARNING)
    assert shown(world) == WARNING.text
    world.driver().end(-9)
    assert shown(world) == "", "what is gone needs nothing"
    world.run(world.reconciler(), 20)
    assert world.driver().attempt == 2
    assert shown(world) == ""
    delete_warning(world.store, "fares", 7)


def test_golden_warnings_are_written_and_read_as_ever(world: World) -> None:
    write_warning(world.store, "fares", WARNING)
    path = "fares/control/warnings/00000001.json"
    assert world.store.get(path) == GOLDEN.read_bytes()
    assert read_warning(world.store, "fares", 1) == WARNING
    world.store.put(path, b"{")
    assert read_warning(world.store, "fares", 1) is None
