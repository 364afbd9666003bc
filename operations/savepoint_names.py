"""The names of jobs' savepoints when a code location is loaded, for the help of operations."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Final

import dagster as dg

from tidemark.assets.values.store_location import store_location
from tidemark.errors import TidemarkError
from tidemark.state import JobLog, JobStore, Pins, job_folder

SECONDS: Final = 3.0
"""How long a code location's loading waits for the names; a slow or unreachable store gives none."""

NAMES: Final = 12
"""Names for each job, the newest."""


def known_savepoints(store: str | dg.EnvVar, jobs: Iterable[str]) -> Mapping[str, Sequence[str]]:
    """Return the newest savepoints of jobs, newest first; without jobs whose savepoints cannot be read, or not in time.

    Args:
        store: folder or bucket of the job stores.
        jobs: the jobs' names.
    """
    found: dict[str, Sequence[str]] = {}
    names = tuple(jobs)

    def read() -> None:
        try:
            root = JobStore.open(store_location(store), make=False)
        except (TidemarkError, OSError):
            # Definitions load without the store; whatever needs it says what is wrong with it.
            return
        for job in names:
            with suppress(TidemarkError, OSError):
                times = Pins(JobLog(root.at(job_folder(job)), job)).files()
                found[job] = sorted(times, key=lambda name: times[name], reverse=True)[:NAMES]

    reader = threading.Thread(target=read, name="tidemark-savepoints", daemon=True)
    reader.start()
    reader.join(SECONDS)
    return dict(found)
