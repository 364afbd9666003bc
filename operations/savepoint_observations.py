"""Savepoints as Dagster sees them: an observation of each output of the job, with what the savepoint says."""

from __future__ import annotations

from collections.abc import Iterator

import dagster as dg

from tidemark.assets.job_streams import output_streams
from tidemark.assets.metadata_values import MetadataItem, MetadataValues
from tidemark.assets.translator import TidemarkTranslator
from tidemark.graph.job import Job
from tidemark.savepoints.savepoint import Savepoint


def savepoint_metadata(savepoint: Savepoint) -> MetadataValues:
    """Return what a savepoint says, as metadata.

    The keys are not those of epochs: an observation with these says how far the job was reported.
    """
    info, record = savepoint.info, savepoint.record
    metadata: dict[str, MetadataItem] = {
        "tidemark/savepoint": savepoint.name,
        "tidemark/savepoint_kind": info.kind,
        "tidemark/savepoint_epoch": record.epoch,
        "tidemark/savepoint_lineage": record.lineage,
        "tidemark/savepoint_taken": dg.MetadataValue.timestamp(savepoint.taken_at / 1000),
        "tidemark/state_rows": info.state_rows,
        "tidemark/state_bytes": info.state_bytes,
        "tidemark/state_files": info.state_files,
        "tidemark/code_version": info.code_version,
        "tidemark/taken_by": info.by,
        "tidemark/restore": dg.MetadataValue.md(
            f"`tidemark rewind {savepoint.job} --to {savepoint.name}` puts state and tables back; "
            f"`tidemark savepoint show {savepoint.job} {savepoint.name}` shows it"
        ),
    }
    if info.note:
        metadata["tidemark/note"] = info.note
    if savepoint.restorable_until is not None:
        metadata["tidemark/tables_until"] = dg.MetadataValue.timestamp(savepoint.restorable_until / 1000)
    return metadata


def savepoint_observations(savepoint: Savepoint, job: Job | None, translator: TidemarkTranslator) -> Iterator[dg.AssetObservation]:
    """Yield an observation for each output.

    Args:
        savepoint: the savepoint.
        job: the job, where the code location has it; else the outputs' keys are those that the translator gives by default.
        translator: that gave the assets their keys.
    """
    if job is not None:
        keys = {stream.name: translator.get_asset_spec(stream).key for stream in output_streams(job)}
    else:
        keys = {name: dg.AssetKey([savepoint.job, name]) for name in savepoint.record.outputs}
    shared = savepoint_metadata(savepoint)
    for name, key in keys.items():
        table = savepoint.info.tables.get(name)
        own: dict[str, MetadataItem] = {}
        if table is not None:
            own = {"tidemark/table_version": table.version, "tidemark/table": dg.MetadataValue.path(table.location)}
        yield dg.AssetObservation(asset_key=key, metadata={**shared, **own})
