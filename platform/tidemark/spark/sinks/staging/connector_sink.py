"""The sink of a connector in the engine: staged in the job's own folder by default, and published from there by the driver."""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import TYPE_CHECKING, ClassVar

from tidemark.errors import MissingEpochsError, PublishError
from tidemark.savepoints.delta.missing_records import Retained
from tidemark.savepoints.model.verdict import Finding, OutputVerdict, incompatible_outputs_error
from tidemark.spark.sinks.staging.missing import Expected
from tidemark.spark.sinks.staging.sink_owner import SinkOwner
from tidemark.spark.sinks.staging.staging import Occupancy
from tidemark.state.log.records import EpochRecord, OutputRecord, SinkPosition
from tidemark.state.store.layout import STAGING
from tidemark.state.store.store import JobStore

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType

    from tidemark.spark.sinks.delta.delta_changes import Changes

logger = logging.getLogger("tidemark")


class ConnectorSink(ABC):
    """What the sinks of connectors have in common. A connector answers how it stages, publishes, and knows what it holds.

    Staged files are deleted once they are published, so missing epochs cannot be published again.

    Args:
        name: of the output.
        place: where readers find the rows, as records and errors show it.
        owner: whose output it is.
    """

    kind: ClassVar[str]
    upserts: bool = False
    starts_only = False

    def __init__(self, name: str, place: str, owner: SinkOwner) -> None:
        self.name = name
        self.owner = owner
        self._place = place
        self.expected = Expected()

    @property
    def location(self) -> str:
        """Where readers find the rows."""
        return self._place

    @property
    def staging(self) -> JobStore:
        """The store that files are staged in: at the job's folder."""
        return self.owner.store

    @property
    def row_keys(self) -> tuple[str, ...]:
        """The columns by which rows replace older ones; empty where all are added."""
        return ()

    def accepts(self, record: OutputRecord) -> bool:  # noqa: ARG002 - a connector's
        """Whether an epoch's rows, which were staged for this place, can be published as the sink is now."""
        return True

    def staging_folder(self, name: str) -> str:
        """Return a folder below the job's."""
        return f"{STAGING}/{self.name}/{name}"

    def visible_files(self) -> frozenset[str]:
        """Return nothing: what is staged is published as a copy."""
        return frozenset()

    def expect(self, expected: Expected) -> None:
        """Set what the job's log knows of the place."""
        self.expected = expected

    def require_republishable(self, retained: Retained) -> None:  # noqa: ARG002 - the protocol's
        """Refuse: staged files are deleted once they are published.

        Raises:
            MissingEpochsError: always.
        """
        raise self._cannot_republish()

    def republish(self, retained: Retained) -> tuple[int, ...]:  # noqa: ARG002 - the protocol's
        """Refuse as ``require_republishable`` does."""
        raise self._cannot_republish()

    def require_fit(self, findings: Sequence[Finding]) -> None:
        """Log how a table differs from the rows.

        Raises:
            SinkError: it cannot take them.
        """
        verdict = OutputVerdict(self.name, self.kind, self.location, "incompatible", tuple(findings))
        if verdict.blockers:
            raise incompatible_outputs_error([verdict])
        for finding in findings:
            logger.info("output %r: %s", self.name, finding.text())

    def unpublished(self, what: str, epoch: int, *, causes: str) -> PublishError:
        """Return the error of a committed epoch that could not be published.

        Args:
            what: why.
            epoch: its number.
            causes: what may have to be repaired.
        """
        return PublishError(
            f"output {self.name!r} of a committed epoch could not be published: {what}",
            fix=f"repair that ({causes}) and start the job again: it finishes this epoch first",
            uid=self.name,
            epoch=epoch,
            place=self.location,
        )

    def _cannot_republish(self) -> MissingEpochsError:
        job = self.owner.job
        return MissingEpochsError(
            f"the missing epochs of output {self.name!r} cannot be published again: their staged files were deleted after publication",
            fix=f"restore the place from a backup, rewind the job to where the place is (`tidemark rewind {job} --to SAVEPOINT`), or "
            "continue without those epochs (`--missing-epochs accept`), which the job's log keeps; nothing was changed",
            job=job,
            uid=self.name,
            place=self.location,
        )

    @abstractmethod
    def stage(self, rows: DataFrame, changes: Changes | None, staging: str, *, epoch: int, processing_time: int) -> OutputRecord:
        """Stage an epoch's rows below ``staging_folder(staging)``, with nothing that refers to them yet; one Spark job.

        Values that the place could not take must fail here: after the commit there is no other way.

        Args:
            rows: of the output; the engine's own columns order the rows of an upsert, and are not written.
            changes: how rows of a changelog are identified, None for streams that are only added to.
            staging: name of this attempt's staging.
            epoch: the current one.
            processing_time: of it, milliseconds.
        """

    @abstractmethod
    def publish(self, record: OutputRecord, lineage: str, epoch: int) -> None:
        """Make the staged rows of a committed epoch visible, once, and delete the staged files.

        Raises:
            FencedError: a newer driver has published to the place.
            MissingEpochsError: the place no longer holds what was published before; nothing was written.
            PublishError: it cannot be published now.
        """

    @abstractmethod
    def check(self, schema: StructType) -> None:
        """Raise SinkError when rows of this type cannot go here. Called before anything is staged."""

    @property
    @abstractmethod
    def occupancy(self) -> Occupancy:
        """What there is at the place."""

    @abstractmethod
    def create(self, schema: StructType) -> None:
        """Create the place, without rows; one that this output created, and that never had rows, gets these columns."""

    @abstractmethod
    def require_whole(self) -> None:
        """Raise MissingEpochsError when the place no longer holds what was published to it."""

    @property
    @abstractmethod
    def position(self) -> SinkPosition | None:
        """The place's position when it was last checked, None before that."""

    @abstractmethod
    def adopt(self) -> None:
        """Accept the place as it is."""

    @abstractmethod
    def missing(self, retained: Retained) -> tuple[EpochRecord, ...]:
        """Return the retained epochs that the place does not hold."""

    @abstractmethod
    def newest(self, lineage: str) -> int | None:
        """Return the newest epoch of a lineage that readers can see, None where there is none."""
