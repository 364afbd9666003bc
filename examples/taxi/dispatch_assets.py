"""The dispatcher's job in Dagster: its tables as assets, and a check that a process function and a window add up the same tips."""

from __future__ import annotations

from collections.abc import Iterator

import dagster as dg

from examples.taxi.dispatch import dispatch_job
from examples.taxi.job import example_home
from tidemark.assets import Conservation, streaming_assets
from tidemark.resources import TidemarkResource
from tidemark.resources.run_events import StreamingEvent


@streaming_assets(job=dispatch_job, checks=(Conservation(),))
def dispatch(context: dg.AssetExecutionContext, tidemark: TidemarkResource) -> Iterator[StreamingEvent]:
    """Read the events of airport rides that have arrived; write what process functions make of them."""
    yield from tidemark.run(context=context)


@dg.asset_check(
    asset=dg.AssetKey([dispatch_job.name, "driver_tips"]),
    additional_deps=[dg.AssetKey([dispatch_job.name, "driver_tips_by_window"])],
)
def same_as_by_window() -> dg.AssetCheckResult:
    """Compare the tips of each driver's hour with those of a tumbling window."""
    from examples.taxi.report import read_table, same_tips

    folder = example_home() / "warehouse" / dispatch_job.name
    by_function, by_window = (read_table(folder / name) for name in ("driver_tips", "driver_tips_by_window"))
    return dg.AssetCheckResult(passed=same_tips(by_function, by_window), metadata={"rows": by_function.num_rows})
