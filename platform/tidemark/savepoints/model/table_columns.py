"""Compares the columns of a result table with those of an output's rows: every difference at once. Pure.

A table that the output has written to evolves: it gets new columns, and those that the rows lack are null from then on. Any other place
stays as it is, since it may belong to another writer.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field

from tidemark.graph.operators.window.columns import REPLACED_SESSIONS, REPLACES
from tidemark.savepoints.model.stored_types import shown_type, type_change
from tidemark.savepoints.model.verdict import Finding

Columns = Mapping[str, object]
"""Types of columns by name, as Spark's and Delta's JSON have them; None where a type is not certain."""


@dataclass(frozen=True)
class Stored:
    """The table or folder at an output's place.

    Args:
        noun: its name in messages: ``table`` or ``folder``.
        columns: the columns that it has.
        follows: whether its columns may change.
        fix: what to do if they may not.
        required: columns that take no null.
        keys: columns by which rows of the output replace older ones.
    """

    noun: str
    columns: Columns
    follows: bool
    fix: str
    required: Collection[str] = field(default=frozenset())
    keys: Collection[str] = ()


def lists_starts(wanted: Columns, there: Columns) -> bool:
    """Return whether a place lists only the starts of replaced sessions, as an earlier release did, where rows have both bounds."""
    return shown_type(there.get(REPLACES)) == "ARRAY<TIMESTAMP>" and shown_type(wanted.get(REPLACES)) == REPLACED_SESSIONS


def column_findings(wanted: Columns, stored: Stored) -> tuple[Finding, ...]:
    """Return every difference between the rows of an output and the table or folder at its place."""
    return tuple(_Case(wanted, stored).findings())


@dataclass(frozen=True)
class _Case:
    """One output and its place."""

    wanted: Columns
    stored: Stored

    def findings(self) -> Iterator[Finding]:
        """Yield every difference: types, spelling, new columns, missing columns."""
        for name, kind in self.wanted.items():
            if name in self.stored.columns:
                yield from self._retyped(name, kind, self.stored.columns[name])
            elif (other := self._spelled(name)) is not None:
                what = f"column {name!r} is spelled {other!r} in the {self.stored.noun}"
                yield Finding(what, "incompatible", fix=f"spell it {other!r} in a select after the last operator")
            else:
                yield self._new(name, kind)
        for name in self._removed:
            yield self._missing(name)

    def _retyped(self, name: str, now: object, then: object) -> Iterator[Finding]:
        if now is None or then is None or type_change(then, now) == "same":
            return
        if name == REPLACES and lists_starts(self.wanted, self.stored.columns):
            yield Finding(f"column {name!r} lists starts, as the {self.stored.noun} was made", "compatible", "a new table has both bounds")
            return
        what = f"column {name!r} is {shown_type(now)} in the output and {shown_type(then)} in the {self.stored.noun}, whose types stay"
        fix = f"cast it to {shown_type(then)} after the last operator, give it another name, or write to another path"
        yield Finding(what, "incompatible", fix=fix)

    def _new(self, name: str, kind: object) -> Finding:
        shown = f"{name!r}" if kind is None else f"{name!r} ({shown_type(kind)})"
        if not self.stored.follows:
            return Finding(f"the {self.stored.noun} lacks column {shown}", "incompatible", fix=self.stored.fix)
        if name in self.stored.keys:
            what = f"column {shown} is a key and new to the {self.stored.noun}, so no existing row could be replaced"
            return Finding(what, "incompatible", fix="upsert by the previous keys, or write to another path")
        return Finding(f"the {self.stored.noun} gets column {shown}", "migrates", "it is null in existing rows")

    def _missing(self, name: str) -> Finding:
        kind = self.stored.columns[name]
        shown = f"{name!r}" if kind is None else f"{name!r} ({shown_type(kind)})"
        if not self.stored.follows:
            return Finding(f"the output lacks column {shown}", "incompatible", fix=self.stored.fix)
        if name in self.stored.required:
            what = f"the output lacks column {shown}, which is NOT NULL in the {self.stored.noun}"
            fix = f"keep the column, write to another path, or take NOT NULL off {name!r} of the table"
            return Finding(what, "incompatible", fix=fix)
        heirs = [new for new in self._added if _same_type(self.wanted[new], kind)]
        renamed = f"; if it is called {heirs[0]!r} now, rename it back in a select to keep writing to it" if len(heirs) == 1 else ""
        return Finding(f"column {name!r} is null from now on", "compatible", f"older rows keep their values{renamed}")

    @property
    def _added(self) -> list[str]:
        return [name for name in self.wanted if name not in self.stored.columns and self._spelled(name) is None]

    @property
    def _removed(self) -> list[str]:
        lowered = {name.lower() for name in self.wanted}
        return [name for name in self.stored.columns if name.lower() not in lowered]

    def _spelled(self, name: str) -> str | None:
        """Return the column that Spark would resolve a name to."""
        return next((other for other in self.stored.columns if other.lower() == name.lower() and other not in self.wanted), None)


def _same_type(one: object, other: object) -> bool:
    return one is None or other is None or type_change(other, one) == "same"
