"""What ``TidemarkResource.run`` yields: an iterator of Dagster events that can be chained before it is consumed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import dagster as dg

from tidemark.assets.report.output_table import OutputTable

StreamingEvent = dg.MaterializeResult[object] | dg.AssetCheckResult


class TidemarkEvents(Iterator[StreamingEvent]):
    """The events of one run. The job runs when the first event is requested.

    Args:
        events: the events.
        tables: tables behind the assets, by key; for ``with_row_counts``.
    """

    def __init__(self, events: Iterator[StreamingEvent], tables: Mapping[dg.AssetKey, OutputTable]) -> None:
        self._events = events
        self._tables = tables

    def __next__(self) -> StreamingEvent:
        return next(self._events)

    def with_row_counts(self) -> TidemarkEvents:
        """Take ``dagster/row_count`` from the tables themselves, by their files' metadata.

        Without it the count is what the job committed since its lineage began, which costs nothing; a table that other jobs or an earlier
        lineage wrote to has more rows.
        """
        return TidemarkEvents(self._counted(), self._tables)

    def _counted(self) -> Iterator[StreamingEvent]:
        for event in self._events:
            if not isinstance(event, dg.MaterializeResult) or event.asset_key is None:
                yield event
                continue
            table = self._tables.get(dg.AssetKey.from_coercible(event.asset_key))
            counted = {} if table is None else {"dagster/row_count": table.rows()}
            yield event._replace(metadata={**(event.metadata or {}), **counted})
