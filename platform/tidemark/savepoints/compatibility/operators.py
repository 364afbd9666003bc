"""Compares the stored state of one operator with its current declaration: keys, windows, firing, aggregates, types."""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Mapping
from typing import Final, cast

from tidemark.errors import DefinitionError
from tidemark.graph.checks.schema_inference import state_columns
from tidemark.graph.model.nodes import StatefulNode
from tidemark.graph.operators.changes import DefinitionChange, Kept, Names, entries, renamed
from tidemark.graph.operators.registry import definition_changes, describe_state, encode, kind_of
from tidemark.graph.operators.state_names import ELEMENT_ORDER, FUNCTION_PART, element_column, element_name, key_column, partial_column
from tidemark.savepoints.compatibility.new_operators import steps_of_bootstrap, takes_changes
from tidemark.savepoints.model.restore_words import LEAVE_BEHIND, by_restore
from tidemark.savepoints.model.stored_types import (
    Change,
    older_columns,
    shown_type,
    stored_columns,
    type_change,
    type_of_ddl,
    with_names_of,
)
from tidemark.savepoints.model.verdict import Finding, Fit, OperatorVerdict, Rewrite, Status
from tidemark.state.log.records import OperatorState

_LEAVE_ALL = f"or give the operator a new uid, and drop the old state: {LEAVE_BEHIND}"


def check_operator(
    uid: str, state: OperatorState, node: StatefulNode, *, stored_uid: str, names: Names, types: Mapping[str, object] | None
) -> OperatorVerdict:
    """Return the verdict on one operator.

    Args:
        uid: the job's.
        state: the stored state.
        node: its current declaration.
        stored_uid: the uid that the state is stored under.
        names: what was renamed or dropped.
        types: of its state's columns from now on, by name; None if only the graph was asked.
    """
    case = _Case(uid, state, node, names=names, types=types)
    findings = tuple(case.findings())
    fits: set[Fit] = {finding.fit for finding in findings}
    status: Status = "incompatible" if "incompatible" in fits else "migrates" if "migrates" in fits else "compatible"
    if stored_uid != uid:
        findings = (Finding(f"its state is that of {stored_uid!r}", "compatible"), *findings)
    rewrite = Rewrite() if status == "incompatible" else case.rewrite()
    return OperatorVerdict(uid, stored_uid, status, findings, rewrite)


_OF_DISTINCT: Final = frozenset({"collect_set", "count_distinct"})


class _Case:
    """One operator, as stored and as declared now."""

    def __init__(self, uid: str, state: OperatorState, node: StatefulNode, *, names: Names, types: Mapping[str, object] | None) -> None:
        self._uid = uid
        self._state = state
        self._names = names
        self._node = node
        self._kind = kind_of(node)
        self._old = {key: value for key, value in state.definition.items() if key != "schema"}
        self._new = encode(node)
        same = self._old.get("kind") == self._kind.name
        self._parts_before = self._kind.state_parts(self._old) if same else {}
        self._parts = self._kind.state_parts(self._new)
        self._columns = stored_columns(state.definition.get("schema"))
        self._kept: Kept = self._kind.keeps(node)
        before: Kept = self._kept if not self._columns else "elements" if ELEMENT_ORDER in self._columns else "partials"
        self._changes = definition_changes(self._old, self._new, names, kept=(before, self._kept))
        older = older_columns(state.definition.get("schema"))
        self._older = {new for old, new in self._new_names().items() if old in older}
        self._wanted = self._as_stored(_known_types(node) if types is None else types)
        self._check_names()

    def findings(self) -> Iterator[Finding]:
        """Yield every difference."""
        for change in self._changes:
            yield self._finding(change)
        if not any(change.about in {"kind", "kept"} and change.effect == "other" for change in self._changes):
            yield from self._type_findings()
            yield from self._element_findings()
        for column in self._stale:
            what = f"what {self._shown(column)} kept as {column!r} before an earlier change has no meaning now, and is dropped"
            yield Finding(what, "migrates")
        if self._without_function:
            rows = sum(file.rows for file in self._state.files if file.part == FUNCTION_PART)
            yield Finding("the window function was removed", "migrates", f"its state is dropped: {rows:,} rows")

    def rewrite(self) -> Rewrite:
        """Return how the columns of its state change."""
        new_names = self._new_names()
        dropped = [column for change in self._changes if change.effect == "left" for column in self._parts_before[change.name]]
        added = [column for change in self._changes if change.effect == "added" for column in self._parts[change.name]]
        if self._kept == "elements":
            added = list(self._new_elements())
        restarted = [column for change in self._changes for column in change.restarted if column in self._columns]
        dropped, added = [*dropped, *restarted, *self._stale], [*added, *(new_names[column] for column in restarted)]
        widened = {name: self._wanted[name] for name, _ in self._retyped("wider")}
        return Rewrite(
            {old: new for old, new in new_names.items() if old != new and old in self._columns and old not in restarted},
            tuple(column for column in dropped if column in self._columns),
            widened,
            tuple(added) if self._columns else (),
            self._without_function,
        )

    @property
    def _stale(self) -> list[str]:
        """Columns that only older rows have, of nothing that is stored now, and whose names are given again: as a lifetime's times."""
        if self._kept != "partials":
            return []
        known, named = self._new_names(), {column.lower() for columns in self._parts.values() for column in columns}
        return [column for column in self._columns if column not in known and column.lower() in named]

    @property
    def _without_function(self) -> bool:
        kept = any(file.part == FUNCTION_PART for file in self._state.files)
        return kept and not ("function" in self._new and self._new.get("aggregates"))

    def _finding(self, change: DefinitionChange) -> Finding:
        number = sum(file.rows for file in self._state.files)
        rows, part = describe_state(self._old, number), f"its part of {number:,} rows of state; the rest is kept"
        match change.effect:
            case "none":
                return Finding(change.what, "migrates" if change.restarted else "compatible")
            case "renamed":
                return Finding(change.what, "migrates")
            case "added":
                return Finding(change.what, "migrates", self._kind.added_part)
            case "left":
                return Finding(change.what, "migrates", part)
            case "gone":
                return Finding(change.what, "incompatible", part, self._fix_of_removed(change.name))
        part = self._kind.part_noun
        added = change.about == part and change.name not in entries(self._old, f"{part}s")
        what = {"key": "keep the key", part: f"leave the {part} out" if added else f"keep the {part} as it was, and add another beside it"}
        fix = f"{what.get(change.about, 'undo the change')}{self._rename_hint(change)}, {self._leave_all()}"
        return Finding(change.what, "incompatible", rows, fix)

    def _fix_of_removed(self, name: str) -> str:
        listed = "states" if self._kind.part_noun == "state" else "aggregates"
        was, now = entries(self._old, listed).get(name, {}), entries(self._new, listed)
        added = (change.name for change in self._changes if change.effect == "added")
        alike = [each for each in added if {**now.get(each, {}), "name": name, "result": ""} == {**was, "result": ""}]
        leave = f"drop it: {self._renaming(name, None)}"
        if alike:
            return f"map it to its new name {alike[0]!r}: {self._renaming(name, alike[0])}; or {leave}"
        return f"keep the {self._kind.part_noun}, or {leave}"

    def _renaming(self, old: str, new: str | None) -> str:
        return by_restore(f"columns={{{self._uid!r}: {{{old!r}: {new!r}}}}}", f"--column {self._uid}:{old}={new or ''}")

    def _leave_all(self) -> str:
        """Return how to go on without the state: of changes to rows that it has not been given, an operator makes no results."""
        if not takes_changes(self._node):
            return _LEAVE_ALL
        return f"or have its state made of the rows again, {steps_of_bootstrap(self._uid, self._node, removed=True)}"

    def _rename_hint(self, change: DefinitionChange) -> str:
        """Return how to map a renamed key, if one was removed and one is new."""
        keys = [each for each in self._changes if each.about == "key" and each.effect == "other"]
        gone = [each.name for each in keys if each.what.endswith("was removed")]
        new = [each.name for each in keys if each.what.endswith("is new")]
        if change.about != "key" or len(gone) != 1 or len(new) != 1:
            return ""
        return f"; if it was only renamed, map it: {self._renaming(gone[0], new[0])}"

    def _type_findings(self) -> Iterator[Finding]:
        for name, old in self._retyped("wider"):
            now = self._wanted[name]
            has_more = self._owner(name) in entries(self._new, "states") and type_change(old, now) == "other"
            null = "fields that are new are null in values that are stored already" if has_more else ""
            yield Finding(f"{self._shown(name)} was {shown_type(old)} and is now {shown_type(now)}", "migrates", null)
        for name, old in self._retyped("other"):
            if older := self._kind.older_form(self._owner(name), old, self._wanted[name]):
                what, fix = older
                yield Finding(what, "incompatible", "its results so far", fix)
                continue
            was, now = shown_type(old), shown_type(self._wanted[name])
            declared = self._owner(name) in entries(self._new, "states")
            keep = f"declare it as {was}" if declared else f"cast it to {was} before the {self._kind.noun}"
            fix = f"{keep}, {self._leave_all()}"
            yield Finding(f"{self._shown(name)} was {was} and is now {now}", "incompatible", "values that do not fit the new type", fix)

    def _retyped(self, how: str) -> list[tuple[str, object]]:
        """Return the columns, by their new names, whose types change so, with the types that are stored."""
        changed = {change.name for change in self._changes if change.effect == "other"} - {""}
        found = []
        for old, new in self._new_names().items():
            wanted = self._wanted.get(new)
            if wanted is None or old not in self._columns or self._owner(new) in changed:
                continue
            if self._change_of(new, self._columns[old], wanted) == how:
                found.append((new, self._columns[old]))
        return found

    def _change_of(self, column: str, stored: object, wanted: object) -> Change:
        kind = entries(self._new, "aggregates").get(self._owner(column), {}).get("kind")
        keys = set(map(key_column, entries(self._new, "keys")))
        compared = column in keys or kind in _OF_DISTINCT
        # The fields of distinct combinations are named after the columns, and are identified by their order.
        same = with_names_of(stored, wanted) if kind in _OF_DISTINCT else stored
        change = type_change(same, wanted, compared=compared, evolves=self._owner(column) in entries(self._new, "states"))
        return "wider" if change == "same" and type_change(stored, wanted) != "same" else change

    def _as_stored(self, types: Mapping[str, object]) -> Mapping[str, object]:
        """Return types by the names that the stored columns have from now on: names that differ only in case are the same."""
        stored = {name.lower(): name for name in self._new_names().values()}
        return {stored.get(name.lower(), name): kind for name, kind in types.items()}

    def _element_findings(self) -> Iterator[Finding]:
        for old, new in self._new_names().items():
            if old != new and element_name(old) is not None:
                what = f"the column {element_name(old)!r} of kept elements is now called {element_name(new)!r}"
                yield Finding(what, "migrates")
        again = {column.lower() for column in self._older}
        for column in self._new_elements():
            what, null = f"elements keep the column {element_name(column)!r} from now on", "elements that are stored already"
            if column.lower() in again:
                what, null = f"elements keep the column {element_name(column)!r} again", "elements that came in between"
            yield Finding(what, "migrates", f"it is null in {null}; an open window may have both")

    def _new_elements(self) -> Iterator[str]:
        """Yield the columns of elements that are needed and not stored."""
        stored = {new.lower() for new in self._new_names().values() if new not in self._older}
        if self._kept == "elements" and self._columns:
            yield from (name for name in self._wanted if element_name(name) is not None and name.lower() not in stored)

    def _new_names(self) -> dict[str, str]:
        """Return the columns of keys, partials and elements that are stored and stay, with their new names."""
        found = {}
        for name in entries(self._old, "keys"):
            found[key_column(name)] = key_column(renamed(name, self._names))
        for column in self._columns:
            element = element_name(column)
            if element is not None:
                found[column] = element_column(renamed(element, self._names))
        for name, columns in self._parts_before.items():
            if self._kept == "partials" and not (name in self._names and self._names[name] is None):
                now = renamed(name, self._names)
                found |= {column: partial_column(now, column.removeprefix(partial_column(name, ""))) for column in columns}
        return found

    def _owner(self, column: str) -> str:
        """Return the key or aggregate that a column belongs to."""
        for name, columns in self._parts.items():
            if column in columns:
                return name
        return next((name for name in entries(self._new, "keys") if key_column(name) == column), "")

    def _shown(self, column: str) -> str:
        """Return how messages name a column."""
        if element_name(column) is not None:
            return f"the column {element_name(column)!r} of kept elements"
        owner = self._owner(column)
        return f"the key {owner!r}" if column == key_column(owner) else f"the {_state_of(self._kind.part_noun)} {owner!r}"

    def _check_names(self) -> None:
        """Refuse a map that names nothing stored, drops what cannot be dropped, or maps two columns to one."""
        known = {*entries(self._old, "keys"), *entries(self._old, "aggregates"), *self._parts_before}
        known |= {name for name in map(element_name, self._columns) if name is not None}
        texts = _texts(self._old)
        part, parts = self._kind.part_noun, sorted(self._parts_before)
        for name, new in self._names.items():
            # A column of the stream is not stored by its name, where only an expression over it is.
            if name not in known and not any(name in text for text in texts):
                raise DefinitionError(
                    f"the map of columns names {name!r}, which has no stored state",
                    fix=f"name existing ones: {', '.join(sorted(known)) or 'none'}; stored names stand on the left",
                    uid=self._uid,
                )
            if new is None and name not in parts:
                raise DefinitionError(
                    f"the map of columns drops {name!r}, and only {'' if part == 'state' else 'the state of '}{_one(part)} can be dropped",
                    fix=f"give its new name, or drop {_one(part)}: {', '.join(parts) or 'it has none'}",
                    uid=self._uid,
                )
            self._check_new_name(name, new)
        new_names = [column.lower() for column in self._new_names().values()]
        twice = sorted({column for column in new_names if new_names.count(column) > 1})
        if twice:
            raise DefinitionError(
                f"with the map of columns two columns of the stored state would be one: {', '.join(map(repr, twice))}",
                fix=f"give each another name, or drop {_one(part)}, with no new name (--column {self._uid}:NAME=)",
                uid=self._uid,
            )

    def _check_new_name(self, name: str, new: str | None) -> None:
        """Refuse a new name of a key or of a part of the state that is in nothing of the operator as it is now."""
        named = {*entries(self._new, "keys"), *entries(self._new, "aggregates"), *self._parts}
        columns = {element_name(column) for column in self._wanted}
        was_named = name in {*entries(self._old, "keys"), *entries(self._old, "aggregates"), *self._parts_before}
        if new is None or not was_named or new in named or new in columns or any(new in text for text in _texts(self._new)):
            return
        close = difflib.get_close_matches(new, sorted(named - {name}), n=1)
        raise DefinitionError(
            f"the map of columns gives {name!r} the new name {new!r}, which the operator does not have",
            fix=f"write {close[0]!r}" if close else f"name one that it has: {', '.join(sorted(named)) or 'none'}",
            uid=self._uid,
        )


def _texts(definition: Mapping[str, object]) -> list[str]:
    """Return the expressions of a definition."""
    texts = [str(entry.get("expression")) for entry in entries(definition, "keys").values()]
    for entry in entries(definition, "aggregates").values():
        texts += cast("list[str]", entry.get("arguments", []))
        texts += [part["create"] for part in cast("list[Mapping[str, str]]", entry.get("partials", []))]
    windows = definition.get("assigner")
    return texts + ([str(windows.get(name)) for name in ("gap_by", "zone_by")] if isinstance(windows, Mapping) else [])


def _one(part: str) -> str:
    return f"{'an' if part == 'aggregate' else 'a'} {part}"


def _state_of(part: str) -> str:
    return "state" if part == "state" else f"state of {part}"


def _known_types(node: StatefulNode) -> dict[str, object]:
    columns = state_columns(node) or {}
    return {name: None if kind is None else type_of_ddl(kind) for name, kind in columns.items()}
