"""Plans the epochs of a job without a query of Spark's: what each reads of every source."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from tidemark.graph.model.nodes import FormatSpec, SourceNode
from tidemark.spark.sources.checkpoint import SparkCheckpoint
from tidemark.spark.sources.epoch_input import EpochInput
from tidemark.spark.sources.planning.file_planner import FilePlanner, has_files, written_by_query
from tidemark.spark.sources.planning.offset_planner import OffsetPlanner, has_offsets
from tidemark.spark.sources.planning.source_planner import SourcePlanner
from tidemark.state.log.offset_log import offset_entry, positions
from tidemark.state.store.store import JobStore

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def needs_no_query(spark: SparkSession, sources: Sequence[SourceNode]) -> bool:
    """Whether the epochs of a job over these sources can be planned without a query."""
    return all(has_files(source.spec) or has_offsets(source.spec) for source in sources) and not written_by_query(spark, sources)


class EpochPlanner:
    """Plans epochs.

    Args:
        spark: the session.
        sources: of the job, which ``needs_no_query``.
        elements: the store of elements given in the program.
        checkpoint: with the logs of the files read.
        before: offsets of the newest epoch, empty before the first.
    """

    def __init__(
        self, spark: SparkSession, sources: Sequence[SourceNode], elements: JobStore, checkpoint: SparkCheckpoint, before: str
    ) -> None:
        read = positions(before)
        self._planners: dict[str, SourcePlanner] = {}
        try:
            for source in sources:
                self._planners[source.name] = (
                    OffsetPlanner(spark, source.spec, read.get(source.name), f"{checkpoint.path}/offsets-{source.name}")
                    if isinstance(source.spec, FormatSpec)
                    else FilePlanner(spark, source, elements, checkpoint)
                )
        except BaseException:
            self.close()
            raise

    @property
    def has_unread(self) -> bool:
        """Whether the last look at any source found input that is not read yet."""
        return any(planner.has_unread for planner in self._planners.values())

    def look(self) -> bool:
        """Look for new input in the sources of which none is known to be unread; returns whether there is any."""
        for planner in self._planners.values():
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
            earlier,
            positions(offsets),
            {name: each.files for name, each in taken.items() if each.files},
            polled_at,
            batch=True,
            sizes={name: each.bytes for name, each in taken.items() if each.bytes is not None},
            reads={name: each.read for name, each in taken.items() if each.read is not None},
            rows={name: each.rows for name, each in taken.items() if each.rows is not None},
        )

    @property
    def progress(self) -> Mapping[str, object]:
        """What Spark's progress of a query would say of the sources, in their order."""
        return {"sources": [planner.metrics() for planner in self._planners.values()]}

    def close(self) -> None:
        """Close connections to the sources."""
        for planner in self._planners.values():
            planner.close()
