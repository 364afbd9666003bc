"""Functions that cannot be sent to workers are refused when a run begins, with their operator and line."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import Any

import pytest

import tidemark as tm
from tidemark.errors import UserCodeError
from tidemark.spark.operators.registry.runtimes import runtimes_of
from tidemark.spark.operators.registry.sendable import check_sendable

READ = tm.source("rides", tm.from_elements([], schema="k STRING, at TIMESTAMP"), watermarks=tm.ascending(timestamp="at"))


class Locked:
    def __init__(self) -> None:
        self.lock = threading.Lock()

    def process(self, element: Mapping[str, Any], ctx: tm.ProcessContext) -> None: ...

    async def invoke(self, element: Mapping[str, Any]) -> dict[str, Any]:
        return {"n": len(element)}


class Opened:
    def open(self, ctx: tm.ProcessContext) -> None:
        self.service = ctx.timer_service()
        self.lock = threading.Lock()

    def process(self, element: Mapping[str, Any], ctx: tm.ProcessContext) -> None: ...


@pytest.mark.parametrize(
    "stream",
    [
        READ.key_by("k").process(Locked(), returns="n INT").uid("locks"),
        READ.process(Locked(), returns="n INT").uid("locks"),
        READ.async_map(Locked(), returns="n INT").uid("locks"),
    ],
    ids=["keyed", "elements", "asynchronous"],
)
def test_a_lock_made_with_the_function_is_refused(stream: tm.Stream) -> None:
    with pytest.raises(UserCodeError) as raised:
        runtimes_of([stream.node], job="rides")  # type: ignore[list-item]
    found = raised.value
    assert "Locked" in found.what
    assert "cannot pickle '_thread.lock' object" in found.what
    assert (found.job, found.uid, found.transient) == ("rides", "locks", False)
    assert "test_sendable.py:" in str(found.place)
    assert "in open()" in found.fix


def test_what_open_makes_is_not_sent() -> None:
    check_sendable(READ.key_by("k").process(Opened(), returns="n INT").uid("opens").node)  # type: ignore[arg-type]
