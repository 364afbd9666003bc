"""The second job of the example: what a dispatcher of airport cabs knows, by process functions.

The meter reports when a ride starts and when it ends, the payment comes later and on its own; some reports get lost. The job joins rides
with their payments, reports rides that take too long while they are on the road, adds up the tips of each driver's hour, and compares fares
with limits that change while it runs.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import tidemark as tm
from examples.taxi.job import example_home

RIDES = "ride_id BIGINT, driver_id INT, zone INT, event STRING, at TIMESTAMP"
FARES = "ride_id BIGINT, driver_id INT, zone INT, paid_at TIMESTAMP, tip DOUBLE, total DOUBLE"
LIMITS = "zone INT, at TIMESTAMP, dollars DOUBLE, gone BOOLEAN"

BOUND_MINUTES = 5
WAIT_HOURS = 6
LONG_HOURS = 2
MINUTE_MS, HOUR_MS = 60_000, 3_600_000

UNMATCHED = tm.OutputTag("unmatched")

Row = Mapping[str, Any]


class RidesWithFares:
    """Joins the start of a ride with its payment, whichever comes first; one that waits six hours for the other is unmatched."""

    ride = tm.value_state("STRUCT<driver_id: INT, zone: INT, started_at: TIMESTAMP>")
    fare = tm.value_state("STRUCT<tip: DOUBLE, total: DOUBLE>")

    def process1(self, start: Row, ctx: tm.ProcessContext) -> Iterator[Row]:
        """Take the start of a ride."""
        ride = {"driver_id": start["driver_id"], "zone": start["zone"], "started_at": start["at"]}
        fare = self.fare.value()
        if fare is None:
            self.ride.update(ride)
            self._wait(ctx)
        else:
            yield self._matched(ride, fare, ctx)

    def process2(self, paid: Row, ctx: tm.ProcessContext) -> Iterator[Row]:
        """Take a payment."""
        fare = {"tip": paid["tip"], "total": paid["total"]}
        ride = self.ride.value()
        if ride is None:
            self.fare.update(fare)
            self._wait(ctx)
        else:
            yield self._matched(ride, fare, ctx)

    def on_timer(self, timestamp: int, ctx: tm.ProcessContext) -> None:
        """Give up waiting."""
        del timestamp
        lacks = "fare" if self.fare.value() is None else "ride"
        ctx.output(UNMATCHED, {"ride_id": ctx.current_key["ride_id"], "lacks": lacks})
        self._forget()

    def _wait(self, ctx: tm.ProcessContext) -> None:
        ctx.timer_service().register_event_time_timer(ctx.timestamp + WAIT_HOURS * HOUR_MS, "expiry")

    def _matched(self, ride: Row, fare: Row, ctx: tm.ProcessContext) -> Row:
        ctx.timer_service().delete_event_time_timer(name="expiry")
        self._forget()
        return {"ride_id": ctx.current_key["ride_id"], **ride, **fare}

    def _forget(self) -> None:
        self.ride.clear()
        self.fare.clear()


class LongRides:
    """Reports a ride once it has taken two hours, whether or not its end is ever reported."""

    driver = tm.value_state("INT")
    started = tm.value_state("BIGINT")
    reported = tm.value_state("BOOLEAN", ttl=tm.state_ttl("1 day", domain="event"))

    def process(self, event: Row, ctx: tm.ProcessContext) -> Iterator[Row]:
        """Take a start or an end; an end without a start says nothing."""
        if event["event"] == "start":
            self.driver.update(event["driver_id"])
            self.started.update(ctx.timestamp)
            ctx.timer_service().register_event_time_timer(ctx.timestamp + LONG_HOURS * HOUR_MS, "long")
            return
        started = self.started.value()
        if started is not None and ctx.timestamp - started > LONG_HOURS * HOUR_MS and not self.reported.value():
            # It ended before the watermark reached the timer.
            yield self._row(ctx)
        ctx.timer_service().delete_event_time_timer(name="long")
        for state in (self.driver, self.started, self.reported):
            state.clear()

    def on_timer(self, timestamp: int, ctx: tm.ProcessContext) -> Iterator[Row]:
        """Report the ride."""
        del timestamp
        yield self._row(ctx)
        self.reported.update(True)
        self.driver.clear()
        self.started.clear()

    def _row(self, ctx: tm.ProcessContext) -> Row:
        return {"ride_id": ctx.current_key["ride_id"], "driver_id": self.driver.value(), "started": self.started.value()}


class HourlyTips:
    """Adds up a driver's tips by the hour, as a tumbling window does: an hour's row comes when the watermark has passed the hour."""

    tips = tm.map_state("BIGINT", "DOUBLE")

    def process(self, fare: Row, ctx: tm.ProcessContext) -> None:
        """Add a tip to its hour, unless the hour is over."""
        hour = ctx.timestamp // HOUR_MS * HOUR_MS
        last = hour + HOUR_MS - 1
        if last > ctx.current_watermark():
            self.tips.put(hour, (self.tips.get(hour) or 0.0) + fare["tip"])
            ctx.timer_service().register_event_time_timer(last)

    def on_timer(self, timestamp: int, ctx: tm.ProcessContext) -> Iterator[Row]:
        """Emit the hour that ends."""
        hour = timestamp + 1 - HOUR_MS
        yield {"driver_id": ctx.current_key["driver_id"], "hour": hour, "tips": self.tips.get(hour)}
        self.tips.remove(hour)


class HighFares:
    """Reports fares above the limit of their zone, which changes at run time, and how many the driver has had."""

    times = tm.reducing_state("BIGINT", lambda so_far, one: so_far + one)

    def process(self, fare: Row, ctx: tm.ProcessContext) -> Iterator[Row]:
        """Compare a fare with the limit of its zone, if there is one."""
        limit = ctx.broadcast["limits"].get(fare["zone"])
        if limit is not None and fare["total"] > limit["dollars"]:
            self.times.add(1)
            yield {**fare, "dollars": limit["dollars"], "times": self.times.get()}


def build_dispatch(events: str | Path, warehouse: str | Path, *, name: str = "dispatch", store: str | Path | None = None) -> tm.Job:
    """Return the job.

    Args:
        events: folder with the folders ``rides``, ``fares`` and ``limits``, in which JSON lines arrive.
        warehouse: folder of its Delta tables.
        name: the job's.
        store: folder of the job's log and state; None leaves the choice to the runner.
    """
    rides, fares, limits = (
        tm.source(
            source,
            tm.files(str(Path(events) / source), format="json", schema=schema),
            watermarks=tm.bounded_out_of_orderness(f"{BOUND_MINUTES} minutes", timestamp=time),
        )
        for source, schema, time in (("rides", RIDES, "at"), ("fares", FARES, "paid_at"), ("limits", LIMITS, "at"))
    )
    starts = rides.filter("event = 'start'").uid("starts")
    matched = (
        starts.key_by("ride_id")
        .connect(fares.key_by("ride_id"))
        .process(
            RidesWithFares,
            returns="ride_id BIGINT, driver_id INT, zone INT, started_at TIMESTAMP, tip DOUBLE, total DOUBLE",
            side_outputs={UNMATCHED: "ride_id BIGINT, lacks STRING"},
        )
        .uid("rides-with-fares")
    )
    long_rides = rides.key_by("ride_id").process(LongRides, returns="ride_id BIGINT, driver_id INT, started BIGINT").uid("long-rides")
    tips = fares.key_by("driver_id").process(HourlyTips, returns="driver_id INT, hour BIGINT, tips DOUBLE").uid("driver-tips")
    by_window = fares.key_by("driver_id").window(tm.tumbling("1 hour")).aggregate(tips=tm.sum("tip")).uid("driver-tips-by-window")
    high = (
        fares.key_by("driver_id")
        .connect(limits.broadcast("limits", key="zone", value="dollars DOUBLE", removes="gone"))
        .process(HighFares, returns=f"{FARES}, dollars DOUBLE, times BIGINT")
        .uid("high-fares")
    )
    folder = Path(warehouse)
    streams = {
        "rides_with_fares": matched,
        "unmatched": matched.side_output(UNMATCHED),
        "long_rides": long_rides.select("ride_id", "driver_id", started_at="timestamp_millis(started)"),
        "driver_tips": tips.select("driver_id", "tips", hour="timestamp_millis(hour)"),
        "driver_tips_by_window": by_window,
        "high_fares": high,
    }
    return tm.Job(
        name,
        outputs={output: tm.delta(stream, str(folder / output)) for output, stream in streams.items()},
        store=None if store is None else str(store),
        description="Rides of airport cabs as they happen: payments, long rides, tips by driver and hour, high fares.",
        owners=("team:tidemark-examples",),
        tags={"domain": "taxi"},
    )


dispatch_job = build_dispatch(example_home() / "events", example_home() / "warehouse" / "dispatch", store=example_home() / "store")
"""The job that Dagster's runs drain."""
