"""Where results go, and what each sink guarantees."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidemark.graph.nodes import ConsoleSpec, DeltaSpec, MemorySpec, Output, ParquetSpec, SinkSpec
from tidemark.graph.places import user_place

if TYPE_CHECKING:
    from tidemark.graph.streams import Stream


def delta(stream: Stream, path: str) -> Output:
    """Write a stream to a Delta table at a path; the table is created if it is not there.

    Guarantee: exactly once. All rows of an epoch appear in one table version, which carries the epoch's number.
    """
    return Output(node=stream.node, sink=DeltaSpec(path=path), place=user_place())


def parquet(stream: Stream, path: str) -> Output:
    """Write a stream to a folder of Parquet files.

    Guarantee: each row exactly once; the files of one epoch appear one after the other, so a reader may see part of an epoch.
    """
    return Output(node=stream.node, sink=ParquetSpec(path=path), place=user_place())


def console(stream: Stream, *, rows: int = 20) -> Output:
    """Print at most so many rows of a stream per epoch.

    Guarantee: at least once; an epoch that is finished after a crash prints again.
    """
    return Output(node=stream.node, sink=ConsoleSpec(rows=rows), place=user_place())


def memory(stream: Stream, name: str) -> Output:
    """Keep a stream's rows in this process under a name, for tests and notebooks.

    Guarantee: exactly once within the process; gone with it.
    """
    return Output(node=stream.node, sink=MemorySpec(name=name), place=user_place())


def guarantee(sink: SinkSpec) -> str:
    """Return in words what a sink guarantees.

    >>> guarantee(DeltaSpec("warehouse/tips"))
    'exactly once'
    """
    match sink:
        case DeltaSpec():
            return "exactly once"
        case ParquetSpec():
            return "exactly once, an epoch's files one after the other"
        case ConsoleSpec():
            return "at least once"
        case MemorySpec():
            return "exactly once within the process"
