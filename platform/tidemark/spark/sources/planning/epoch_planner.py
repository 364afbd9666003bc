"""Plans the epochs of a job without a query of Spark's: what each reads of every source."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from tidemark.errors import SourceError
from tidemark.graph.model.nodes import SourceNode
from tidemark.graph.model.postgres_changes_spec import PostgresChangesSpec
from tidemark.graph.model.source_specs import DeltaTableSpec, FormatSpec
from tidemark.spark.sources.checkpoint import SparkCheckpoint
from tidemark.spark.sources.epoch_input import EpochInput
from tidemark.spark.sources.kafka.options import require_credentials, resolved
from tidemark.spark.sources.planning.delta_planner import DeltaPlanner
from tidemark.spark.sources.planning.file_planner import FilePlanner, has_files, written_by_query
from tidemark.spark.sources.planning.offset_planner import OffsetPlanner, has_offsets
from tidemark.spark.sources.planning.postgres_planner import PostgresPlanner
from tidemark.spark.sources.planning.source_planner import PlannedJob, SourcePlanner
from tidemark.state.log.offset_log import offset_entry, positions
from tidemark.state.log.records import EpochRecord
from tidemark.state.store.layout import ELEMENTS

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def needs_no_query(spark: SparkSession, sources: Sequence[SourceNode]) -> bool:
    """Whether the epochs of a job over these sources can be planned without a query.

    Raises:
        SourceError: they cannot, and one is a Delta table or tables of Postgres, which no query of Spark's can read.
    """
    if not all(_is_planned(source) for source in sources):
        _require_no_restart(sources)
        _require_no_table(sources, f"source {next(source.name for source in sources if not _is_planned(source))!r}")
        return False
    if written_by_query(spark, sources):
        _require_no_table(sources, "the folder of a source that a query of Spark's writes")
        return False
    return True


def _is_planned(source: SourceNode) -> bool:
    return has_files(source.spec) or has_offsets(source.spec) or isinstance(source.spec, DeltaTableSpec | PostgresChangesSpec)


def _require_no_restart(sources: Sequence[SourceNode]) -> None:
    found = next((each for each in sources if isinstance(each.spec, FormatSpec) and each.spec.on_remade == "restart"), None)
    if found is not None:
        other = next(source.name for source in sources if not _is_planned(source))
        raise SourceError(
            f"source {found.name!r} is read from its beginning where its topic is made again, and a query of Spark's, which source "
            f"{other!r} needs, cannot do that",
            fix="leave on_remade out, or read the sources in two jobs",
            uid=found.name,
            place=found.place,
        )


def _require_no_table(sources: Sequence[SourceNode], other: str) -> None:
    table = next((source for source in sources if isinstance(source.spec, DeltaTableSpec | PostgresChangesSpec)), None)
    if table is not None:
        what, page = ("a Delta table", "delta-source") if isinstance(table.spec, DeltaTableSpec) else ("Postgres", "postgres-changes")
        raise SourceError(
            f"source {table.name!r} is {what}, which Tidemark reads itself, and {other} is read by a query of Spark's: "
            "one job does not do both",
            fix=f"read them in two jobs, or give the other source options that need no query (see docs/how-to/{page}.md)",
            uid=table.name,
            place=table.place,
        )


class EpochPlanner:
    """Plans epochs.

    Args:
        spark: the session.
        sources: of the job, which ``needs_no_query``.
        job: the job, whose folder has the elements that are given in the program.
        checkpoint: with the logs of the files read.
        head: the newest epoch, None before the first.
    """

    def __init__(
        self,
        spark: SparkSession,
        sources: Sequence[SourceNode],
        job: PlannedJob,
        *,
        checkpoint: SparkCheckpoint,
        head: EpochRecord | None,
    ) -> None:
        read, topics = (positions(head.offsets), head.topics) if head is not None else ({}, {})
        self._planners: dict[str, SourcePlanner] = {}
        self._looked_at: dict[str, int] = {}
        try:
            for source in sources:
                spec, position = source.spec, read.get(source.name)
                if isinstance(spec, FormatSpec):
                    require_credentials(source, spec)
                    folder = f"{checkpoint.path}/offsets-{source.name}"
                    ids = topics.get(source.name, {})
                    planner: SourcePlanner = OffsetPlanner(spark, resolved(source, spec), position, folder, topics=ids)
                elif isinstance(spec, DeltaTableSpec):
                    planner = DeltaPlanner(spark, source, spec, position)
                elif isinstance(spec, PostgresChangesSpec):
                    planner = PostgresPlanner(spark, source, job, position)
                else:
                    planner = FilePlanner(spark, source, job.store.at(ELEMENTS), checkpoint)
                self._planners[source.name] = planner
        except BaseException:
            self.close()
            raise

    @property
    def has_unread(self) -> bool:
        """Whether the last look at any source found input that is not read yet."""
        return any(planner.has_unread for planner in self._planners.values())

    def look(self, at: int) -> bool:
        """Look for new input in the sources of which none is known to be unread, at a processing time; returns whether there is any."""
        for name, planner in self._planners.items():
            if not planner.has_unread:
                self._looked_at[name] = at
            planner.look()
        return self.has_unread

    def fix_end(self) -> None:
        """Let the sources end with the input that they have now."""
        for planner in self._planners.values():
            planner.fix_end()

    def plan(self, before: str, bounded: Sequence[SourceNode], *, polled_at: int | None) -> EpochInput:
        """Return the input of the next epoch.

        Args:
            before: offsets of the epoch before.
            bounded: the sources with the bounds of an epoch.
            polled_at: the processing time of the last look.
        """
        earlier = positions(before)
        found = {source.name: self._planners[source.name].take(source, earlier.get(source.name)) for source in bounded}
        taken = {name: each for name, each in found.items() if each is not None}
        now = {name: taken[name].position if name in taken else earlier.get(name) for name in self._planners}
        offsets = offset_entry(before, now)
        return EpochInput(
            offsets,
            {**earlier, **{name: each.start for name, each in taken.items() if each.start is not None}},
            positions(offsets),
            {name: each.files for name, each in taken.items() if each.files},
            polled_at,
            batch=True,
            sizes={name: each.bytes for name, each in taken.items() if each.bytes is not None},
            reads={name: each.read for name, each in taken.items() if each.read is not None},
            rows={name: each.rows for name, each in taken.items() if each.rows is not None},
            caught_up={name: each.caught_up for name, each in taken.items() if each.caught_up is not None},
            topics={name: each.topics for name, each in taken.items() if each.topics},
            listed_at={name: self._looked_at[name] for name, each in taken.items() if each.files and name in self._looked_at},
        )

    def committed(self, offsets: str) -> None:
        """Note that the epoch with these offsets was committed and published."""
        read = positions(offsets)
        for name, planner in self._planners.items():
            planner.committed(read.get(name))

    @property
    def progress(self) -> Mapping[str, object]:
        """What Spark's progress of a query would say of the sources, in their order."""
        return {"sources": [planner.metrics() for planner in self._planners.values()]}

    def close(self) -> None:
        """Close connections to the sources."""
        for planner in self._planners.values():
            planner.close()
