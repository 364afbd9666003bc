"""The plan of an epoch, fixed before it runs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from tidemark.graph.model.nodes import SourceNode
from tidemark.semantics.watermarks.watermarks import SourceEnd, SourceState, with_splits_of
from tidemark.state.log.epoch_intent import TableVersion
from tidemark.state.log.records import EpochRecord, OperatorState

if TYPE_CHECKING:
    from tidemark.spark.sources.intake import SourceRows
    from tidemark.spark.sources.record_texts import RecordTexts


@dataclass(frozen=True)
class Checkpoint:
    """The state of sources and operators after an epoch, from which the next one resumes."""

    sources: Mapping[str, SourceState] = field(default_factory=dict)
    operators: Mapping[str, OperatorState] = field(default_factory=dict)

    @classmethod
    def after(cls, record: EpochRecord | None, sources: Iterable[SourceNode]) -> Checkpoint:
        """Return the checkpoint after an epoch.

        Args:
            record: of the epoch, None before the first.
            sources: of the job as it is now, which may have other splits.
        """
        if record is None:
            return cls()
        by_split = {
            node.name: with_splits_of(node.watermarks, record.sources[node.name]) for node in sources if node.name in record.sources
        }
        return cls({**record.sources, **by_split}, record.operators)


@dataclass(frozen=True)
class EpochPlan:
    """The plan of an epoch, fixed before it runs.

    ``batches`` are the rows of the sources that have any; ``ends`` says how far each source was read; ``strict``
    names those in which rows too far ahead of processing time are expected. ``texts`` read the records of sources again, with their
    texts. ``tables`` are the versions of the tables that operators read, by their names.
    """

    epoch: int
    lineage: str
    processing_time: int
    before: Checkpoint
    batches: Mapping[str, SourceRows]
    ends: Mapping[str, SourceEnd]
    strict: frozenset[str] = frozenset()
    texts: Mapping[str, RecordTexts] = field(default_factory=dict)
    end_of_input: bool = False
    tables: Mapping[str, TableVersion] = field(default_factory=dict)
