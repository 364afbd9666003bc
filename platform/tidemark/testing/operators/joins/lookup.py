"""The join with a table in plain Python."""

from __future__ import annotations

from deltalake import DeltaTable
from pyarrow import dataset

from tidemark.graph.operators.join_keys import added_names
from tidemark.graph.operators.lookup.node import LookupNode
from tidemark.locations import Location
from tidemark.testing.operators.contract import Arrived, Emitted, Folds, PureOperatorBase, Row, value_of


class PureLookup(PureOperatorBase):
    """A join with a table on this machine, as it is when the first element comes.

    Args:
        node: its declaration.
        folds: not used.
    """

    def __init__(self, node: LookupNode, folds: Folds) -> None:
        del folds
        self._node = node
        self._operator: list[Row] | None = None
        self._emitted: list[Emitted] = []

    def begin_epoch(self, processing_time: int) -> None:
        """Do nothing: the version is read once."""

    def process(self, element: Arrived) -> None:
        """Join an element with all rows of its key."""
        node = self._node
        rows = self._rows()
        what = "lookup key"
        key = [value_of(expression, element.row, what=what, node=node) for expression in (each.left for each in node.on)]
        names = [name for name in added_names(node.on, list(rows[0]) if rows else []) if node.columns is None or name in node.columns]
        found = [
            row
            for row in rows
            if None not in key and key == [value_of(each, row, what=what, node=node) for each in (pair.right for pair in node.on)]
        ]
        if not found and node.how == "left":
            self._emitted.append(Emitted({**element.row, **dict.fromkeys(names)}, element.time))
        self._emitted += [Emitted({**element.row, **{name: row[name] for name in names}}, element.time) for row in found]

    def end_epoch(self, watermark: int) -> list[Emitted]:
        """Return the joined rows."""
        del watermark
        emitted, self._emitted = self._emitted, []
        return emitted

    def state(self) -> list[dict[str, object]]:
        """Return nothing: it keeps no state."""
        return []

    def _rows(self) -> list[Row]:
        if self._operator is None:
            table, location = self._node.table, Location.parse(self._node.table.path)
            read = DeltaTable(location.uri).to_pyarrow_table() if table.format == "delta" else dataset.dataset(location.path).to_table()
            self._operator = read.to_pylist()
        return self._operator
