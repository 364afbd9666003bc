"""Summaries of the stored state of a job's operators, from records alone."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from tidemark.graph.operators.registry import stored_state
from tidemark.graph.operators.state_names import ELEMENT_ORDER
from tidemark.savepoints.model.stored_types import stored_columns
from tidemark.state.log.records import OperatorState

_TABLES: Final[Mapping[str, tuple[str, ...]]] = MappingProxyType(
    {
        "keyed_process": ("keys", "timers"),
        "connected_process": ("keys", "timers"),
        "broadcast_process": ("keys", "timers", "broadcast"),
        "broadcast_element_process": ("broadcast",),
        "deduplicate": ("kept",),
        "regular_join": ("left", "right"),
        "running": ("keys",),
        "sql_state": ("keys",),
        "group_aggregate": ("groups",),
        "latest": ("rows",),
        "top_n": ("rows",),
        "interval_join": ("elements",),
        "window_join": ("elements",),
        "asof_join": ("left", "versions"),
    }
)
"""The tables of each kind of operator that has no windows, the main one first, as its runtime's ``stored_tables`` returns them."""


@dataclass(frozen=True)
class StoredOperator:
    """A summary of one operator's stored state: its form and size.

    ``keeps`` is ``partials``, ``elements`` or ``nothing``; ``kind`` the operator's, such as ``window``; ``windows`` the kind of its windows
    with their settings, empty for other operators; ``states`` names what a process function keeps of each key. ``rows`` and ``bytes`` are
    of state files, in which a key and window may have several rows. ``watermark`` is in milliseconds.
    """

    uid: str
    keeps: str
    kind: str
    keys: tuple[str, ...]
    windows: Mapping[str, object]
    aggregates: tuple[str, ...]
    rows: int
    bytes: int
    files: int
    watermark: int
    states: tuple[str, ...] = ()

    @property
    def tables(self) -> tuple[str, ...]:
        """The tables that its state is read as, the main one first; there may be no ``elements`` where no window was ever opened."""
        if self.kind in _TABLES or not self.windows:
            return _TABLES.get(self.kind, ())
        return ("windows", "elements", "keys", "timers") if self.keeps == "elements" else ("windows",)


def described(uid: str, state: OperatorState) -> StoredOperator:
    """Return the summary of an operator's state."""
    definition = state.definition
    columns = stored_columns(definition.get("schema"))
    node = definition.get("aggregates"), definition.get("keys"), definition.get("states")
    aggregates, keys, states = (tuple(str(entry["name"]) for entry in entries) if isinstance(entries, list) else () for entries in node)
    windows = definition.get("assigner")
    without = windows is not None and not aggregates if not columns else ELEMENT_ORDER in columns
    return StoredOperator(
        uid=uid,
        keeps="elements" if without else "partials" if stored_state(definition) else "nothing",
        keys=keys,
        kind=str(definition.get("kind")),
        windows=windows if isinstance(windows, Mapping) else {},
        aggregates=aggregates,
        rows=sum(file.rows for file in state.files),
        bytes=sum(file.bytes for file in state.files),
        files=len(state.files),
        watermark=state.watermark,
        states=states,
    )
