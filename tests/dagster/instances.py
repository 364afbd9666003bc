"""Instances for tests: their tables, which take seconds, are made once, nothing waits for a disk, and nobody is told a word."""

from __future__ import annotations

import atexit
import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from tempfile import TemporaryDirectory

import dagster as dg
from sqlalchemy import event
from sqlalchemy.engine import Engine

SETTINGS = {"telemetry": {"enabled": False}}


@event.listens_for(Engine, "connect")
def _leave_writing_to_the_system(connection: object, _record: object) -> None:
    if isinstance(connection, sqlite3.Connection):
        connection.execute("PRAGMA synchronous=OFF")


@contextmanager
def temporary_instance() -> Iterator[dg.DagsterInstance]:
    """Give an instance in a folder that goes with it."""
    with TemporaryDirectory() as folder:
        shutil.copytree(_empty(), folder, dirs_exist_ok=True)
        with dg.DagsterInstance.local_temp(folder, overrides=SETTINGS) as instance:
            yield instance


@cache
def _empty() -> str:
    """Return the folder of an instance that has its tables and nothing in them."""
    place = TemporaryDirectory()
    atexit.register(place.cleanup)
    with dg.DagsterInstance.local_temp(place.name, overrides=SETTINGS) as instance:
        instance.get_run_records(limit=1)
        instance.get_asset_keys()
        instance.all_instigator_state()
    return place.name


@contextmanager
def instance_in_memory() -> Iterator[dg.DagsterInstance]:
    """Give an instance without files: a run writes its events in a fourth of the time, and has no database of its own to be made."""
    with dg.DagsterInstance.ephemeral(settings=SETTINGS) as instance:
        yield instance
