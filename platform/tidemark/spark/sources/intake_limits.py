"""How much of a source one epoch may read: the bounds that its reader is opened with, as they are or by a share of them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Final

from tidemark.graph.model.nodes import FilesSpec, FormatSpec, SourceNode, SourceSpec

DEFAULT_BYTES_PER_EPOCH: Final = 256 * 1024 * 1024
"""A backlog of files is read in epochs of at most so many bytes, so that it is not one epoch in which nothing can be late."""

DEFAULT_ROWS_PER_EPOCH: Final = 5_000_000
"""The same of Kafka, whose bound is in records."""

MIN_SHARE: Final = 1 / 64
MAX_SHARE: Final = 16.0
"""How far intake that adapts may go beyond a default; a bound that the user set is never passed."""

KAFKA: Final = "kafka"
KAFKA_MAX_OFFSETS: Final = "maxOffsetsPerTrigger"
_DELTA_FILES: Final = 1000
"""What Delta takes per trigger where it is told nothing."""

_BOUNDS: Final[Mapping[str, tuple[str, ...]]] = {
    KAFKA: (KAFKA_MAX_OFFSETS,),
    "delta": ("maxFilesPerTrigger", "maxBytesPerTrigger"),
    "iceberg": ("streaming-max-files-per-micro-batch", "streaming-max-rows-per-micro-batch"),
    **dict.fromkeys(("avro", "csv", "json", "orc", "parquet", "text", "xml"), ("maxFilesPerTrigger", "maxBytesPerTrigger")),
}
"""Options that bound a trigger, by format."""


def bounds_of(format: str) -> frozenset[str]:
    """Return the names, in small letters, of the options that bound what a trigger reads of a format; empty where none is known."""
    return frozenset(name.lower() for name in _BOUNDS.get(format.lower(), ()))


def limited(source: SourceNode, share: float = 1.0) -> SourceNode:
    """Return a source whose bounds are all said: the user's or the default, times the share where they can be moved.

    Args:
        source: as the user declared it.
        share: of the usual bounds; more than 1 moves only those that the user left to the engine.
    """
    spec = source.spec
    if isinstance(spec, FilesSpec):
        return replace(source, spec=_limited_files(spec, share))
    if isinstance(spec, FormatSpec):
        return replace(source, spec=_limited_format(spec, share))
    return source


def limited_specs(sources: Iterable[SourceNode], share: float) -> tuple[SourceSpec, ...]:
    """Return what sources are opened with at a share; equal ones need no other reader."""
    return tuple(limited(source, share).spec for source in sources)


def _limited_files(spec: FilesSpec, share: float) -> FilesSpec:
    if spec.max_files_per_epoch is not None:
        return replace(spec, max_files_per_epoch=_part(spec.max_files_per_epoch, min(share, 1.0)))
    if spec.max_bytes_per_epoch is not None:
        return replace(spec, max_bytes_per_epoch=_part(spec.max_bytes_per_epoch, min(share, 1.0)))
    return replace(spec, max_bytes_per_epoch=_part(DEFAULT_BYTES_PER_EPOCH, share))


def _limited_format(spec: FormatSpec, share: float) -> FormatSpec:
    name, bounds = spec.format.lower(), bounds_of(spec.format)
    # Spark compares their names in small letters.
    given = {key: value for key, value in spec.options.items() if key.lower() in bounds}
    if given:
        # What is not a whole number is Spark's to refuse.
        parts = {key: str(_part(int(value), min(share, 1.0))) for key, value in given.items() if value.isdecimal()}
    elif name == KAFKA:
        parts = {KAFKA_MAX_OFFSETS: str(_part(DEFAULT_ROWS_PER_EPOCH, share))}
    elif name == "delta" and share != 1.0:
        parts = {"maxFilesPerTrigger": str(_part(_DELTA_FILES, share))}
    else:
        return spec
    return replace(spec, options={**spec.options, **parts})


def _part(bound: int, share: float) -> int:
    return max(1, round(bound * share))
