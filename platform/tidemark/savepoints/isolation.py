"""A job whose results lie apart from those of the job that it is a variant of."""

from __future__ import annotations

from dataclasses import replace

from tidemark.graph.job import Job
from tidemark.graph.nodes import DeltaSpec, MemorySpec, Output, ParquetSpec, SinkSpec
from tidemark.locations import Location


def isolated(job: Job, *, name: str, root: str) -> Job:
    """Return the job under another name, with its tables and folders under another root: each as ``<root>/<output>``.

    What it prints is printed as ever; what it keeps in memory is kept under the fork's name.

    Raises:
        DefinitionError: the root cannot be read as a location.
        InvalidNameError: the name is not allowed.
    """
    place = Location.parse(root)

    def moved(output_name: str, sink: SinkSpec) -> SinkSpec:
        match sink:
            case DeltaSpec() | ParquetSpec():
                return replace(sink, path=str(place.joined(output_name)))
            case MemorySpec(table):
                return MemorySpec(f"{name}_{table}")
        return sink

    outputs = {key: Output(output.node, moved(key, output.sink), output.place) for key, output in job.outputs.items()}
    return replace(job, name=name, outputs=outputs)
