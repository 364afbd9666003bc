"""The job itself of a described one: imported where a run needs its code, and never where definitions load."""

from __future__ import annotations

from collections.abc import Collection

from tidemark.control import load_job
from tidemark.errors import DefinitionError
from tidemark.graph import DescribedJob, Job

REFRESH = "run `dg utils refresh-defs-state`, then reload the code location"


def with_code(job: Job) -> Job:
    """Return the job with its code: the same, or of a described job the one that its code declares.

    Raises:
        DefinitionError: the code declares a job of another name, or with other outputs, than when it was described.
        TidemarkError: the code cannot be loaded.
    """
    if not isinstance(job, DescribedJob):
        return job
    found = load_job(job.code)
    if found.name != job.name:
        raise DefinitionError(
            f"{job.code} was job {job.name!r} when it was described, and is {found.name!r} now", fix=REFRESH, job=job.name
        )
    if difference := _difference(job.outputs.keys(), found.outputs.keys()):
        raise DefinitionError(f"the outputs of {job.code} have changed since it was described: {difference}", fix=REFRESH, job=job.name)
    return found


def _difference(before: Collection[str], now: Collection[str]) -> str:
    gone = [f"{name!r} is gone" for name in before if name not in now]
    return ", ".join([*gone, *(f"{name!r} is new" for name in now if name not in before)])
