"""The example job: trips in, hourly tips per zone out, and nothing lost on the way.

A trip's record arrives when the trip ends, but belongs to the hour in which it began. So records come out of order by
nature, some come hours late, some are refunds, and some cannot be read at all; each kind has its own table.
"""

from __future__ import annotations

import os
from pathlib import Path

import tidemark as tm

TRIP = """
    vendor_id INT, pickup_datetime TIMESTAMP, dropoff_datetime TIMESTAMP, passenger_count INT, trip_distance DOUBLE,
    rate_code_id INT, store_and_fwd_flag STRING, pickup_location_id INT, dropoff_location_id INT, payment_type INT,
    fare_amount DOUBLE, extra DOUBLE, mta_tax DOUBLE, tip_amount DOUBLE, tolls_amount DOUBLE,
    improvement_surcharge DOUBLE, total_amount DOUBLE, congestion_surcharge DOUBLE
"""
"""Columns of the records of New York's Taxi & Limousine Commission, as Spark DDL. Amounts are dollars, distances miles."""

BOUND_MINUTES = 5
ALLOWED_LATENESS_MINUTES = 10
FILES_PER_EPOCH = 2

LATE = tm.OutputTag("late_trips")
REJECTED = tm.OutputTag("rejected_trips")
MALFORMED = tm.OutputTag("malformed_trips")


def build_job(
    landing: str | Path,
    warehouse: str | Path,
    *,
    name: str = "taxi",
    store: str | Path | None = None,
    files_per_epoch: int | None = FILES_PER_EPOCH,
) -> tm.Job:
    """Return the job over a landing folder of JSON-lines files.

    Args:
        landing: folder in which files of trips arrive; it must exist when the job runs.
        warehouse: folder of the four Delta tables ``hourly_tips``, ``late_trips``, ``rejected_trips``, ``malformed_trips``.
        name: the job's.
        store: folder of the job's log and state; None leaves the choice to the runner.
        files_per_epoch: greatest number of files that one epoch reads; None leaves it to the engine.
    """
    trips = tm.source(
        "trips",
        tm.files(str(landing), format="json", schema=TRIP, max_files_per_epoch=files_per_epoch),
        watermarks=tm.bounded_out_of_orderness(f"{BOUND_MINUTES} minutes", timestamp="pickup_datetime"),
        malformed_to=MALFORMED,
    )
    paid = trips.filter("fare_amount >= 0", rejects_to=REJECTED).uid("paid-trips")
    hourly = (
        paid.with_columns(minutes="(unix_timestamp(dropoff_datetime) - unix_timestamp(pickup_datetime)) / 60")
        .key_by(pickup_zone="pickup_location_id")
        .window(tm.tumbling("1 hour"))
        .allowed_lateness(f"{ALLOWED_LATENESS_MINUTES} minutes")
        .late_to(LATE)
        .aggregate(
            trips=tm.count(),
            tips=tm.sum("tip_amount"),
            fares=tm.sum("fare_amount"),
            typical_fare=tm.approx_percentile("fare_amount", 0.5),
        )
        .uid("hourly-tips")
    )
    folder = Path(warehouse)
    return tm.Job(
        name,
        outputs={
            "hourly_tips": tm.delta(
                hourly,
                str(folder / "hourly_tips"),
                description="Tips and fares of each pick-up zone and hour; of an hour the pane with the greatest `pane_index` counts.",
                columns={
                    "pickup_zone": "Taxi zone in which the trips began.",
                    "tips": "Sum of the tips paid by card, in dollars.",
                    "fares": "Sum of the fares without tips and tolls, in dollars.",
                    "typical_fare": "Median fare, approximately, in dollars.",
                },
            ),
            "late_trips": tm.delta(hourly.side_output(LATE), str(folder / "late_trips")),
            "rejected_trips": tm.delta(paid.side_output(REJECTED), str(folder / "rejected_trips")),
            "malformed_trips": tm.delta(trips.side_output(MALFORMED), str(folder / "malformed_trips")),
        },
        store=None if store is None else str(store),
        description="Tips of New York's yellow taxis by pick-up zone and hour.",
        owners=("team:tidemark-examples",),
        tags={"domain": "taxi"},
    )


def example_home() -> Path:
    """Return the absolute folder of the example's data: ``TIDEMARK_EXAMPLE_HOME``, or ``.tidemark/taxi`` in the checkout."""
    default = Path(__file__).resolve().parents[2] / ".tidemark" / "taxi"
    return Path(os.environ.get("TIDEMARK_EXAMPLE_HOME") or default).absolute()


job = build_job(example_home() / "landing", example_home() / "warehouse", store=example_home() / "store")
"""The job that Dagster's runs drain."""

live_job = build_job(example_home() / "landing", example_home() / "warehouse" / "live", name="taxi_live", store=example_home() / "store")
"""The same job as a continuous one, outside Dagster's runs: with its own tables and state, over the same trips."""
