"""The checks of a job in a separate run: for jobs that run continuously, outside Dagster."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import dagster as dg

from tidemark.assets.checks.check import OutputCheck, check_specs, evaluate_checks
from tidemark.assets.checks.check_context import stored_context
from tidemark.assets.streams.job_code import with_code
from tidemark.assets.streams.job_streams import output_streams
from tidemark.assets.streams.translator import TidemarkTranslator, group_of
from tidemark.assets.values.annotations import with_types
from tidemark.assets.values.store_location import store_location
from tidemark.errors import DefinitionError
from tidemark.graph import Job


def build_asset_checks(
    job: Job,
    checks: Sequence[OutputCheck],
    *,
    store: str | dg.EnvVar | None = None,
    name: str | None = None,
    translator: TidemarkTranslator | None = None,
) -> list[dg.AssetChecksDefinition]:
    """Return checks on the last state of a job and its tables, without running the job and without a JVM.

    Returns a list, as the other builders do; for several jobs, join the lists::

        defs = dg.Definitions(
            assets=specs, asset_checks=build_asset_checks(job, [Conservation(compare_tables=False), UniquePanes("hourly")])
        )

    Args:
        job: the job.
        checks: the same checks that ``streaming_assets`` takes. Checks on a run use the epochs of the history instead;
            expectations with ``rows="run"`` use the whole table.
        store: folder or bucket of job stores; the job's own by default.
        name: name of the op; ``<job>_checks`` by default.
        translator: turns streams into asset keys; the one that the assets were made with.

    Raises:
        DefinitionError: no store is known, or a check names an output that the job does not have.
    """
    given = store if store is not None else job.store
    if given is None:
        raise DefinitionError("the checks have no job store", fix="pass store=..., or Job(store=...)", job=job.name)
    chosen = translator or TidemarkTranslator()
    keys = {stream.name: chosen.get_asset_spec(stream).key for stream in output_streams(job)}

    def check(context: dg.AssetCheckExecutionContext) -> Iterator[dg.AssetCheckResult]:
        checked = stored_context(with_code(job), store_location(given, job.name))
        yield from evaluate_checks(checks, checked, keys=keys, selected=context.selected_asset_check_keys)

    specs = check_specs(job, checks, keys)
    if not specs:
        return []
    decorate = dg.multi_asset_check(
        name=name or f"{group_of(job.name)}_checks",
        specs=specs,
        can_subset=True,
    )
    return [decorate(with_types(check))]
