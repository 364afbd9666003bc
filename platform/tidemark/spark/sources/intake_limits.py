"""How much of a source one epoch may read: the bounds that its reader is opened with, or a share of them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Final

from tidemark.graph.model.nodes import SourceNode
from tidemark.graph.model.postgres_changes_spec import PostgresChangesSpec
from tidemark.graph.model.source_specs import DeltaTableSpec, FilesSpec, FormatSpec, SourceSpec

DEFAULT_BYTES_PER_EPOCH: Final = 256 * 1024 * 1024
"""Bytes per epoch: a backlog of files is read in several epochs, not in one in which nothing can be late."""

DEFAULT_ROWS_PER_EPOCH: Final = 5_000_000
"""The same for Kafka, whose bound is in records."""

DEFAULT_CHANGES_PER_EPOCH: Final = 100_000
"""The same for changes of Postgres, which the driver decodes."""

MIN_SHARE: Final = 1 / 64
MAX_SHARE: Final = 16.0
"""How far adaptive intake may exceed a default; a bound that the user set is never exceeded."""

KAFKA: Final = "kafka"
KAFKA_MAX_OFFSETS: Final = "maxOffsetsPerTrigger"
_DELTA_FILES: Final = 1000
"""Files that Delta takes per trigger by default."""

_BOUNDS: Final[Mapping[str, tuple[str, ...]]] = {
    KAFKA: (KAFKA_MAX_OFFSETS,),
    "delta": ("maxFilesPerTrigger", "maxBytesPerTrigger"),
    "iceberg": ("streaming-max-files-per-micro-batch", "streaming-max-rows-per-micro-batch"),
    **dict.fromkeys(("avro", "csv", "json", "orc", "parquet", "text", "xml"), ("maxFilesPerTrigger", "maxBytesPerTrigger")),
}
"""Options that bound a trigger, by format."""


def bounds_of(format: str) -> frozenset[str]:
    """Return the names, in lower case, of the options that limit what a trigger reads of a format; empty where none is known."""
    return frozenset(name.lower() for name in _BOUNDS.get(format.lower(), ()))


def limited(source: SourceNode, share: float = 1.0) -> SourceNode:
    """Return a source with explicit bounds: the user's or the default, times the share where they can be changed.

    Args:
        source: as the user declared it.
        share: of the usual bounds; more than 1 raises only those that the user left to the engine.
    """
    spec = source.spec
    if isinstance(spec, FilesSpec):
        return replace(source, spec=_limited_files(spec, share))
    if isinstance(spec, FormatSpec):
        return replace(source, spec=_limited_format(spec, share))
    if isinstance(spec, DeltaTableSpec):
        return replace(source, spec=_limited_table(spec, share))
    if isinstance(spec, PostgresChangesSpec):
        own = spec.max_rows_per_epoch
        most = _part(DEFAULT_CHANGES_PER_EPOCH, share) if own is None else _part(own, min(share, 1.0))
        return replace(source, spec=replace(spec, max_rows_per_epoch=most))
    return source


def limited_specs(sources: Iterable[SourceNode], share: float) -> tuple[SourceSpec, ...]:
    """Return the specs that sources are opened with at a share; equal specs need no new reader."""
    return tuple(limited(source, share).spec for source in sources)


def greatest_share(sources: Sequence[SourceNode]) -> float:
    """Return the greatest share at which an epoch may read more than at 1: 1 if the user has set all bounds."""
    return MAX_SHARE if limited_specs(sources, MAX_SHARE) != limited_specs(sources, 1.0) else 1.0


def _limited_files(spec: FilesSpec, share: float) -> FilesSpec:
    if spec.max_files_per_epoch is not None:
        return replace(spec, max_files_per_epoch=_part(spec.max_files_per_epoch, min(share, 1.0)))
    if spec.max_bytes_per_epoch is not None:
        return replace(spec, max_bytes_per_epoch=_part(spec.max_bytes_per_epoch, min(share, 1.0)))
    return replace(spec, max_bytes_per_epoch=_part(DEFAULT_BYTES_PER_EPOCH, share))


def _limited_table(spec: DeltaTableSpec, share: float) -> DeltaTableSpec:
    if spec.max_bytes_per_epoch is not None:
        return replace(spec, max_bytes_per_epoch=_part(spec.max_bytes_per_epoch, min(share, 1.0)))
    return replace(spec, max_bytes_per_epoch=_part(DEFAULT_BYTES_PER_EPOCH, share))


def _limited_format(spec: FormatSpec, share: float) -> FormatSpec:
    name, bounds = spec.format.lower(), bounds_of(spec.format)
    # Spark compares option names in lower case.
    given = {key: value for key, value in spec.options.items() if key.lower() in bounds}
    if given:
        # Spark rejects values that are not whole numbers.
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
