"""Instances for tests: made once, since their tables take seconds, and without a word to anybody."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import dagster as dg


@contextmanager
def temporary_instance() -> Iterator[dg.DagsterInstance]:
    """Give an instance in a folder that goes with it."""
    with dg.DagsterInstance.local_temp(overrides={"telemetry": {"enabled": False}}) as instance:
        yield instance
