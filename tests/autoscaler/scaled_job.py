"""A job in the control plane's world whose driver has a load, without Spark."""

from __future__ import annotations

from tests.control.worlds import World
from tidemark.control.autoscaler.autoscaler import Autoscaler
from tidemark.control.desired.spec_store import require_spec
from tidemark.control.model.autoscaler_records import AutoscalerRecord, read_newest_record
from tidemark.control.model.autoscaler_settings import AutoscalerSettings
from tidemark.control.model.spec import SpecGeneration
from tidemark.state.status.driver_load import Work
from tidemark.state.store.store import JobStore

ACT = AutoscalerSettings(mode="act", max_parallelism=4)


class ScaledJob:
    """A job in a world whose driver processes 1,000 rows per second and partition, and its autoscalers."""

    def __init__(self, settings: AutoscalerSettings = ACT, *, rate: int = 2_000, store: JobStore | None = None) -> None:
        self.world = World(store=store)
        self.rate = rate
        self.backlog = 0.0
        self.world.work = Work(0, 0, 0, parallelism=1, cores=8, max_intake=16.0, backlog_rows=0)
        self.world.submit(autoscaler=settings)
        self.reconciler = self.world.reconciler()
        self.world.run(self.reconciler, 10)
        self.autoscaler = Autoscaler(self.world.store, self.world.clock)

    def minute(self, *others: Autoscaler, look: bool = True) -> None:
        """Let a minute pass: epochs of ten seconds, one of which the driver writes; then the autoscalers look at the same moment."""
        spec, before = self.spec.spec, self.world.work
        assert before is not None
        parallelism = spec.parallelism or 1
        waiting = self.backlog + 60 * self.rate
        rows = min(waiting, 60_000.0 * parallelism)
        self.backlog = waiting - rows
        busy = round(rows / parallelism)
        self.world.intake = 1.0 if spec.intake is None else spec.intake
        self.world.work = Work(
            before.epochs + 6, before.busy_ms + busy, before.rows_in + round(rows), parallelism, 8, 16.0, round(self.backlog)
        )
        for _ in range(6):
            self.world.tick(10)
        if look:
            seen = self.world.observe()
            for autoscaler in (self.autoscaler, *others):
                autoscaler.advance([seen])

    def minutes(self, count: int) -> None:
        for _ in range(count):
            self.minute()

    @property
    def spec(self) -> SpecGeneration:
        return require_spec(self.world.store, "fares")

    @property
    def record(self) -> AutoscalerRecord:
        found = read_newest_record(self.world.store, "fares")
        assert found is not None
        return found
