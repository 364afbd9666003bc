"""A job without its code: the one that is read from a description."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from tidemark.graph.job.job import Job
from tidemark.graph.model.nodes import Output


class DescribedJob(Job):
    """A job that was read from its description: its graph, columns, lineage and sinks, without its code.

    It takes the place of a job wherever nothing is run. ``code`` is where the job itself is, ``MODULE:JOB``; ``version`` is its code
    version when it was described. The user's functions are stand-ins, which raise where they are called.
    """

    code: str
    version: str

    def __init__(self, code: str, version: str, settings: Mapping[str, object], outputs: Mapping[str, Output]) -> None:
        frozen = {
            **settings,
            "code": code,
            "version": version,
            "outputs": MappingProxyType(dict(outputs)),
            "place": "",
        }
        # What a job's constructor checks was checked where the job was described.
        for name, value in frozen.items():
            object.__setattr__(self, name, value)
