"""The sink of a connector to a table that notes each publication, so that the table itself says which epochs it holds."""

from __future__ import annotations

from tidemark.savepoints.delta.table_position import LostEpochs
from tidemark.spark.sinks.staging.connector_sink import ConnectorSink
from tidemark.spark.sinks.staging.missing import missing_error
from tidemark.spark.sinks.staging.sink_owner import SinkOwner
from tidemark.state.log.records import SinkPosition


class TableSink(ConnectorSink):
    """What the sinks to such tables have in common: the newest epoch that is known to be in the table.

    Args:
        name: of the output.
        place: as for ``ConnectorSink``.
        owner: whose output it is.
        table: what positions name the table by; empty where its place is enough.
    """

    def __init__(self, name: str, place: str, owner: SinkOwner, *, table: str = "") -> None:
        super().__init__(name, place, owner)
        self.held: SinkPosition | None = None
        self._table_name = table

    @property
    def position(self) -> SinkPosition | None:
        """The newest epoch that the table was seen to hold, None before it was looked for."""
        return self.held

    @property
    def known(self) -> SinkPosition:
        """The newest epoch that the table must hold."""
        if self.held is not None:
            return self.held
        if self.expected.position is not None:
            return self.expected.position
        lineage, epoch = self.expected.newest or ("", -1)
        return self.position_at(lineage, epoch)

    def position_at(self, lineage: str, epoch: int) -> SinkPosition:
        """Return the position of a table whose newest epoch is one of a lineage; without any where it is negative."""
        return SinkPosition(self._table_name, lineage=lineage, epoch=epoch) if epoch >= 0 else SinkPosition()

    def require_held(self, lost: str | None) -> None:
        """Note that the table holds what is ``known``.

        Args:
            lost: why it does not; None where it does.

        Raises:
            MissingEpochsError: it does not.
        """
        known = self.known
        if lost is not None:
            before = self.expected.position
            exact = before is None or known.epoch != before.epoch
            raise missing_error(self.name, self.owner.job, self.location, known, LostEpochs(-1, lost), exact=exact)
        self.held = known
