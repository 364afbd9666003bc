"""Savepoints in Dagster: an observation of each output of the job, with the savepoint's metadata."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from typing import Final
from urllib.parse import quote

import dagster as dg

from tidemark.assets.streams.job_streams import output_streams
from tidemark.assets.streams.translator import TidemarkTranslator
from tidemark.assets.values.metadata_values import MetadataItem, MetadataValues
from tidemark.graph import Job
from tidemark.locations import Location
from tidemark.savepoints import Restorable, Savepoint
from tidemark.state import PINS, JobStore, pin_path

SAVEPOINT: Final = "tidemark/savepoint"
TAKEN: Final = "tidemark/savepoint_taken"
"""Metadata keys that identify the savepoint of an observation."""

_OWN_S3: Final = ("AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT")
"""Variables that set an S3 endpoint other than Amazon's, whose console does not show it."""


def savepoint_metadata(savepoint: Savepoint, restorable: Restorable, folder: JobStore, *, run_id: str | None = None) -> MetadataValues:
    """Return a savepoint's metadata, with links.

    The keys differ from those of epochs, since an observation with those marks how far the job was reported.

    Args:
        savepoint: the savepoint.
        restorable: until when it can be restored.
        folder: the store at the job's folder.
        run_id: id of the Dagster run that took it.
    """
    info, record = savepoint.info, savepoint.record
    metadata: dict[str, MetadataItem] = {
        SAVEPOINT: savepoint.name,
        "tidemark/savepoint_kind": info.kind,
        "tidemark/savepoint_epoch": record.epoch,
        "tidemark/savepoint_lineage": record.lineage,
        TAKEN: dg.MetadataValue.timestamp(savepoint.taken_at / 1000),
        "tidemark/state_rows": info.state_rows,
        "tidemark/state_bytes": info.state_bytes,
        "tidemark/state_files": info.state_files,
        "tidemark/code_version": info.code_version,
        "tidemark/taken_by": info.by,
        "tidemark/savepoint_path": dg.MetadataValue.path(str(folder.location.joined(pin_path(savepoint.name)))),
        "tidemark/restore": dg.MetadataValue.md(
            f"`tidemark rewind {savepoint.job} --to {savepoint.name}` restores state and tables; "
            f"`tidemark savepoint show {savepoint.job} {savepoint.name}` shows it"
        ),
    }
    url = browser_url(folder.location.joined(PINS))
    if url is not None:
        metadata["tidemark/savepoint_url"] = dg.MetadataValue.url(url)
    if run_id is not None:
        metadata["tidemark/taken_in_run"] = dg.MetadataValue.dagster_run(run_id)
    if info.note:
        metadata["tidemark/note"] = info.note
    if savepoint.tables_until is not None:
        metadata["tidemark/tables_until"] = dg.MetadataValue.timestamp(savepoint.tables_until / 1000)
    if restorable.until is not None:
        metadata["tidemark/restorable_until"] = dg.MetadataValue.timestamp(restorable.until / 1000)
    if restorable.lost:
        metadata["tidemark/lost_input"] = ", ".join(expiry.name for expiry in restorable.lost)
    if restorable.limits:
        metadata["tidemark/restorable"] = dg.MetadataValue.md("\n".join(f"- {expiry}" for expiry in restorable.limits))
    return metadata


def browser_url(folder: Location) -> str | None:
    """Return the URL of an object store's console for a folder; None if it cannot be derived from the location.

    A local folder has none, since browsers do not follow links to one from Dagster's UI; an Azure container's URL needs its
    subscription.

    >>> browser_url(Location.parse("s3://lake/jobs/taxi"))
    'https://s3.console.aws.amazon.com/s3/buckets/lake?prefix=jobs/taxi/'
    >>> browser_url(Location.parse("/srv/jobs/taxi"))
    """
    path = quote(folder.path)
    match folder.scheme:
        case "s3" if not any(os.environ.get(name) for name in _OWN_S3):
            return f"https://s3.console.aws.amazon.com/s3/buckets/{folder.bucket}?prefix={path}/"
        case "gs":
            return f"https://console.cloud.google.com/storage/browser/{folder.bucket}/{path}"
        case _:
            return None


def output_keys(savepoint: Savepoint, job: Job | None, translator: TidemarkTranslator) -> dict[str, dg.AssetKey]:
    """Return the asset keys of the outputs on which a savepoint is observed.

    Args:
        savepoint: the savepoint.
        job: the job, if the code location has it; else the outputs have the translator's default keys.
        translator: gives the assets their keys.
    """
    if job is not None:
        return {stream.name: translator.get_asset_spec(stream).key for stream in output_streams(job)}
    return {name: dg.AssetKey([savepoint.job, name]) for name in savepoint.record.outputs}


def savepoint_observations(
    savepoint: Savepoint, restorable: Restorable, folder: JobStore, keys: Mapping[str, dg.AssetKey], *, run_id: str | None = None
) -> Iterator[dg.AssetObservation]:
    """Yield an observation for each output.

    Args:
        savepoint: the savepoint.
        restorable: until when it can be restored.
        folder: the store at the job's folder.
        keys: asset keys by output.
        run_id: id of the Dagster run that took it, if one did.
    """
    shared = savepoint_metadata(savepoint, restorable, folder, run_id=run_id)
    for name, key in keys.items():
        table = savepoint.info.tables.get(name)
        own: dict[str, MetadataItem] = {}
        if table is not None:
            own = {"tidemark/table_version": table.version, "tidemark/table": dg.MetadataValue.path(table.location)}
        yield dg.AssetObservation(asset_key=key, metadata={**shared, **own})
