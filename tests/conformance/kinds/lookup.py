"""Joins with a table in the conformance suite."""

from __future__ import annotations

import atexit
import shutil
import tempfile
from collections.abc import Mapping
from functools import cache
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import DeltaTable, write_deltalake

import tidemark as tm
from tests.conformance.cases import Case

Tags = Mapping[str, tm.OutputTag]


@cache
def names() -> str:
    """Return the path of a table with two rows of one key, and a null key."""
    folder = tempfile.mkdtemp(prefix="lookup-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    path = str(Path(folder) / "names")
    write_deltalake(path, pa.table({"k": ["a", "b", "b", None], "name": ["ann", "bob", "bill", "nobody"]}))
    return path


def kept(stream: tm.Stream, tags: Tags) -> tm.Stream:
    """Return all elements, those of one key twice."""
    del tags
    return stream.lookup(tm.delta_table(names(), schema="k STRING, name STRING"), on="k")


def known(stream: tm.Stream, tags: Tags) -> tm.Stream:
    """Return the elements that the table has rows of; the columns are known only to the table."""
    del tags
    return stream.lookup(tm.delta_table(names()), on={"k": "k"}, how="inner", refresh="0 seconds")


def copied(stream: tm.Stream, tags: Tags) -> tm.Stream:
    """Return all elements, from a folder of files, which is copied."""
    del tags
    return stream.lookup(tm.parquet_table(files()), on="k", columns=["name"], refresh="0 seconds")


@cache
def files() -> str:
    """Return the path of a folder with the same rows."""
    folder = Path(names()).parent / "files"
    folder.mkdir()
    pq.write_table(DeltaTable(names()).to_pyarrow_table(), folder / "names.parquet")
    return str(folder)


CASES = [
    Case("lookup-left", kept),
    Case("lookup-inner", known, only_long=True),
    Case("lookup-copied", copied, only_long=True),
]
