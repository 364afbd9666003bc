"""Asynchronous enrichment in the conformance suite."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

import tidemark as tm
from tests.conformance.cases import Case

Tags = Mapping[str, tm.OutputTag]
Row = Mapping[str, Any]


class Lookup:
    """A service that answers at once or after a moment, and does not know some values."""

    def __init__(self) -> None:
        self.known: dict[int, str] = {}

    async def open(self) -> None:
        await asyncio.sleep(0)
        self.known = {value: f"name {value}" for value in range(0, 100, 3)}

    async def invoke(self, row: Row) -> Row:
        await asyncio.sleep((row["v"] % 4) / 10_000)
        if row["v"] % 9 == 0:
            raise LookupError(f"{row['v']} is unknown")
        return {"k": row["k"], "v": row["v"], "name": self.known.get(row["v"])}

    def close(self) -> None:
        self.known.clear()


def names(stream: tm.Stream, tags: Tags) -> tm.Stream:
    """Return elements with names; those for which the service fails in a side output."""
    returns = "k STRING, v BIGINT, name STRING"
    return stream.async_map(Lookup, returns=returns, capacity=7, retries=1, backoff="1 ms", on_error=tags["failed"])


async def doubled(row: Row) -> Row:
    """Return twice the value."""
    await asyncio.sleep(0)
    return {"v": 2 * row["v"]}


def doubles(stream: tm.Stream, tags: Tags) -> tm.Stream:
    """Return doubled values, as they are ready."""
    del tags
    return stream.async_map(doubled, returns="v BIGINT", ordered=False)


CASES = [Case("names", names, ("failed",)), Case("doubles", doubles, only_long=True)]
