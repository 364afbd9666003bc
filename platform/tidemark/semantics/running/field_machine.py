"""A state machine over named fields, on plain functions: what an element does to the fields of its key, and what it emits."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from tidemark.semantics.running.keyed_fold import Stepped

Row = Mapping[str, object]
Fields = Mapping[str, object]


@dataclass(frozen=True)
class MachineField:
    """A field: its next value from the element and the fields before it, and the value that it has where nothing is kept of it."""

    update: Callable[[Row, Fields], object]
    initial: object = None


@dataclass(frozen=True)
class FieldMachine:
    """Fields that each element updates. All updates see the fields before the element; one that gives None clears its field.

    Args:
        fields: by name.
        result: of the element, and the fields before and after it, returns the row; None where it emits none.
    """

    fields: Mapping[str, MachineField]
    result: Callable[[Row, Fields, Fields], Row | None] = field(default=lambda row, before, after: {**row, **before, **after})

    def step(self, kept: Fields | None, row: Row) -> Stepped[Fields, Row]:
        """Return what an element does, given the values that are kept."""
        before = self._seen(kept or {})
        updated = {name: each.update(row, before) for name, each in self.fields.items()}
        found = self.result(row, before, self._seen(updated))
        after = {name: value for name, value in updated.items() if value is not None}
        return Stepped(after or None, [] if found is None else [found])

    def _seen(self, kept: Fields) -> dict[str, object]:
        """Return the fields as expressions see them."""
        return {name: each.initial if kept.get(name) is None else kept[name] for name, each in self.fields.items()}
