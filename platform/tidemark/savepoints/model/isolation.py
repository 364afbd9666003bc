"""Redirecting the outputs of a fork to locations apart from those of the original job."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace

from tidemark.errors import DefinitionError
from tidemark.graph.job.job import Job
from tidemark.graph.model.connector_spec import ConnectorSpec
from tidemark.graph.model.nodes import DeltaSpec, MemorySpec, Output, ParquetSpec, SinkSpec
from tidemark.locations import Location


def redirect_outputs(job: Job, *, name: str, root: str) -> Job:
    """Return the job under another name, with its tables and folders under another root: each as ``<root>/<output>``.

    Console outputs stay as they are; in-memory outputs are kept under the fork's name, and connectors write to places of their own.

    Raises:
        DefinitionError: the root cannot be read as a location, or the results would lie where the job's own do.
        InvalidNameError: the name is not allowed.
    """
    place = Location.parse(root)

    def moved(output_name: str, sink: SinkSpec) -> SinkSpec:
        match sink:
            case DeltaSpec() | ParquetSpec():
                return replace(sink, path=str(place.joined(output_name)))
            case MemorySpec(table):
                return MemorySpec(f"{name}_{table}")
            case ConnectorSpec():
                return sink.redirected(name)
        return sink

    outputs = {key: replace(output, sink=moved(key, output.sink)) for key, output in job.outputs.items()}
    require_disjoint(name, _places(outputs), {f"job {job.name!r}": _places(job.outputs)})
    return replace(job, name=name, outputs=outputs)


def require_disjoint(name: str, places: Collection[str], others: Mapping[str, Collection[str]]) -> None:
    """Make sure that a fork's results overlap no other job's place: neither equal, nor around, nor within one.

    Args:
        name: the fork's.
        places: where its results would lie.
        others: other jobs' places, by their owner, in words.

    Raises:
        DefinitionError: one of them does; nothing may be written there, since a fork's tables go with it.
    """
    for whose, taken in others.items():
        for place in taken:
            near = next((each for each in places if overlaps(each, place)), None)
            if near is not None:
                raise DefinitionError(
                    f"the fork {name!r} would write to {near}, and {whose} writes to {place}",
                    fix="give the fork's outputs a separate folder (--outputs), or none: then they lie in the fork's folder",
                    job=name,
                    place=near,
                )


def overlaps(one: str, other: str) -> bool:
    """Return whether two places are the same, or one lies within the other.

    >>> overlaps("/lake/hourly", "/lake/hourly/"), overlaps("/lake", "s3://lake/x"), overlaps("/lake/hourly", "/lake/hourly_2")
    (True, False, False)
    """
    first, second = Location.parse(one).real_parts, Location.parse(other).real_parts
    return all(left == right for left, right in zip(first, second, strict=False))


def _places(outputs: Mapping[str, Output]) -> tuple[str, ...]:
    return tuple(output.sink.path for output in outputs.values() if isinstance(output.sink, DeltaSpec | ParquetSpec))
