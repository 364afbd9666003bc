"""Finds the operation of a code location that starts a job, so that a fix names one that exists."""

from __future__ import annotations

from typing import Final

import dagster as dg

from tidemark.assets.streams.translator import group_of

STORE_STEM: Final = "tidemark"
"""First part of the names of operations that take a job's name."""

OPERATE: Final = "operate"
"""Last part of the name of the Dagster job that has all operations on a streaming job."""


def start_operation(repository: dg.RepositoryDefinition | None, job: str) -> str:
    """Return how to launch the operation that starts a job, as Markdown; empty if the code location has none, or is unknown.

    Args:
        repository: the code location's repository.
        job: the job's name.
    """
    names = frozenset(repository.job_names) if repository is not None else frozenset()
    # Operations of a whole store take the job's name.
    for stem, named in ((group_of(job), ""), (STORE_STEM, f"`job: {job}`")):
        if f"{stem}_{OPERATE}" in names:
            return f"launch `{stem}_{OPERATE}` with {f'{named} and ' if named else ''}`do: {{start: {{}}}}`"
        if f"{stem}_start" in names:
            return f"launch `{stem}_start`{f' with {named}' if named else ''}"
    return ""
