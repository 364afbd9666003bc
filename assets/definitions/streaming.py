"""``@streaming_assets``: the outputs of one job as one multi-asset, and its sources as external assets."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import dagster as dg

from tidemark.assets.checks.check import OutputCheck, check_specs
from tidemark.assets.definitions.bound_job import bind
from tidemark.assets.definitions.retries import retry_transient_errors
from tidemark.assets.streams.job_streams import output_streams, source_address, source_streams
from tidemark.assets.streams.translator import TidemarkTranslator, describe_source, group_of
from tidemark.assets.values.annotations import with_types
from tidemark.errors import DefinitionError
from tidemark.graph import Job

_KIND: Final = "dagster/kind/"
"""Prefix of the tags in which Dagster keeps an asset's kinds, which are given apart."""

SOURCES: Final = "sources"
"""Group of sources that several jobs read."""


def streaming_assets(
    *,
    job: Job,
    name: str | None = None,
    group_name: str | None = None,
    partitions_def: dg.PartitionsDefinition[str] | None = None,
    backfill_policy: dg.BackfillPolicy | None = None,
    op_tags: Mapping[str, object] | None = None,
    pool: str | None = None,
    translator: TidemarkTranslator | None = None,
    can_subset: bool = True,
    checks: Sequence[OutputCheck] = (),
    retry_policy: dg.RetryPolicy | None = None,
) -> Callable[[Callable[..., object]], dg.AssetsDefinition]:
    """Declare one asset per output of a job, all materialized by one run of it.

    The body runs the job and yields its events::

        @streaming_assets(job=job, checks=[Conservation()])
        def taxi(context: dg.AssetExecutionContext, tidemark: TidemarkResource):
            yield from tidemark.run(context=context)

    An epoch always writes all outputs of the job, so selecting some of the assets chooses what is reported and checked, not what is
    computed.

    Args:
        job: the job.
        name: name of the op; the function's by default.
        group_name: group of all assets; the translator's by default (the job's name).
        partitions_def: partitions of the assets, if a run is mapped to a partition; a stream has none by default.
        backfill_policy: how backfills of partitions are split into runs.
        op_tags: tags of the op.
        pool: concurrency pool; ``tidemark_<job>`` by default. A job has one driver at a time, so set the pool's limit to 1
            (``concurrency.pools.default_limit``): a second run then waits instead of failing.
        translator: turns streams into asset specs.
        can_subset: whether some of the assets can be selected.
        checks: checks evaluated in the same run, on its output.
        retry_policy: for transient errors, such as an unreachable store; Tidemark's other errors end the run at once.

    Raises:
        DefinitionError: a check names an output that the job does not have, or two checks of one asset have one name.
    """
    chosen = translator or TidemarkTranslator()
    specs = []
    for stream in output_streams(job):
        spec = bind(chosen.get_asset_spec(stream), stream, chosen, tuple(checks))
        specs.append(spec.replace_attributes(group_name=group_name) if group_name else spec)
    keys = {stream.name: spec.key for stream, spec in zip(output_streams(job), specs, strict=True)}

    def decorate(function: Callable[..., object]) -> dg.AssetsDefinition:
        body = with_types(function)
        return dg.multi_asset(
            specs=specs,
            name=name,
            partitions_def=partitions_def,
            backfill_policy=backfill_policy,
            op_tags=op_tags,
            pool=pool or f"tidemark_{group_of(job.name)}",
            can_subset=can_subset,
            check_specs=check_specs(job, checks, keys),
            retry_policy=retry_policy,
        )(body if retry_policy is None else retry_transient_errors(body))

    return decorate


def build_source_asset_specs(*jobs: Job, translator: TidemarkTranslator | None = None) -> list[dg.AssetSpec]:
    """Return the jobs' sources as external assets: Dagster shows them and their consumers, and does not materialize them.

    A source that several jobs read under one asset key is one asset, in the group ``sources``: in the group of one of them it would look
    as if that job fed the others. A source with the key of another job's output is that output's asset.

    Raises:
        DefinitionError: two jobs read different locations under one asset key.
    """
    chosen = translator or TidemarkTranslator()
    read: dict[dg.AssetKey, list[_Reader]] = {}
    made = {chosen.get_asset_spec(stream).key for job in jobs for stream in output_streams(job)}
    for stream in (stream for job in jobs for stream in source_streams(job)):
        spec = chosen.get_asset_spec(stream)
        if spec.key in made:
            continue
        origin = source_address(stream.source.spec) if stream.source is not None else None
        readers = read.setdefault(spec.key, [])
        if readers and readers[0].origin != origin:
            raise DefinitionError(
                f"source {stream.name!r} reads another location than the source of job {readers[0].job!r} with the same asset key",
                fix="rename one of the sources, or give them different keys in a TidemarkTranslator",
                job=stream.job.name,
                uid=stream.name,
            )
        readers.append(_Reader(stream.job.name, stream.name, origin, spec))
    return [_shared(readers) for readers in read.values()]


@dataclass(frozen=True)
class _Reader:
    """A job that reads a source, the source's name there, where it reads from, and the source's asset as that job alone has it."""

    job: str
    source: str
    origin: object
    spec: dg.AssetSpec


def _shared(readers: Sequence[_Reader]) -> dg.AssetSpec:
    """Return the asset of a source: with several jobs that of none, with the owners of all and the tags that all have.

    One that a translator has put into a group of its own stays as it is for the first job.
    """
    first, spec = readers[0], readers[0].spec
    names = list(dict.fromkeys(f"`{reader.job}`" for reader in readers))
    if len(names) == 1 or spec.group_name != group_of(first.job):
        return spec
    tags = ((key, value) for key, value in spec.tags.items() if not key.startswith(_KIND))
    common = [(key, value) for key, value in tags if all(reader.spec.tags.get(key) == value for reader in readers)]
    text = f"Source `{first.source}` of the streaming jobs {', '.join(names[:-1])} and {names[-1]}; it is written outside Dagster."
    return spec.replace_attributes(
        group_name=SOURCES,
        description=text if spec.description == describe_source(first.job, first.source) else ...,
        owners=list(dict.fromkeys(owner for reader in readers for owner in reader.spec.owners)),
        tags=dict(common),
    )
