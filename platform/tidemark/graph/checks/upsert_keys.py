"""The key columns of an upserting sink."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NoReturn

from tidemark.errors import ColumnError, DefinitionError
from tidemark.graph.checks.changelogs import changelog_keys
from tidemark.graph.checks.schema_inference import schema_of
from tidemark.graph.model.nodes import Expression, FilterNode, Node, SelectNode, StatefulNode, WithColumnsNode
from tidemark.graph.operators.registry import kind_of

START, END, REPLACES = "window_start", "window_end", "replaces"


def upsert_keys(node: Node, keys: object, place: str, *, sink: str = "delta", mode: str = "upsert") -> tuple[str, ...]:
    """Return the key columns of an upserting output.

    The results of windows have default keys: the key's columns and both bounds of the window; of groups by number, which have no bounds,
    the group's index. A session whose bounds move lists its earlier ones in ``replaces``. Any other stream needs ``keys``.

    Args:
        node: the node whose rows are written.
        keys: the user's choice, None for the window's.
        place: file and line of the output's definition.
        sink: the function that declares the output, for messages.
        mode: the output's mode, for messages.

    Raises:
        DefinitionError: no keys are known, they are no list of names, or a column on the way to the output changes one of them.
        ColumnError: the stream has no such column.
    """
    own = changelog_keys(node)
    if own is None:
        return _keys_of_results(node, place, sink, mode) if keys is None else _given_keys(node, keys, place, sink)
    if keys is not None and {key.lower() for key in _given_keys(node, keys, place, sink)} != {key.lower() for key in own}:
        raise DefinitionError(
            f"{sink}({_argument(sink)}={keys!r}) are other columns than the key of the changelog ({', '.join(own)}): rows of several "
            "keys would replace each other",
            fix=f"leave {_argument(sink)} out; for other groups, .key_by(...).aggregate(...) or .latest(by=[...]) before",
            place=place,
        )
    return own


def check_sequence(node: Node, sequence: str, place: str) -> None:
    """Check the column that says from when a version is valid.

    Raises:
        ColumnError: the stream has no such column, or it is no TIMESTAMP.
    """
    schema = schema_of(node)
    column = None if schema is None else schema.find(sequence)
    if schema is not None and column is None:
        near = schema.nearest(sequence)
        raise ColumnError(
            f"delta(sequence={sequence!r}) is no column of the stream; the columns are: {', '.join(schema.names)}",
            fix=f"write {near!r}" if near else "name one of them",
            place=place,
        )
    if column is not None and column.type not in {None, "TIMESTAMP"}:
        raise ColumnError(
            f"delta(sequence={sequence!r}) is of type {column.type}, and versions are valid from a TIMESTAMP on",
            fix=f"cast it before: .with_columns({sequence}='CAST({sequence} AS TIMESTAMP)')",
            place=place,
        )


def _given_keys(node: Node, keys: object, place: str, sink: str) -> tuple[str, ...]:
    if isinstance(keys, str) or not isinstance(keys, Sequence) or not keys or not all(isinstance(key, str) for key in keys):
        raise DefinitionError(
            f"{sink}({_argument(sink)}={keys!r}) is not a list of columns", fix=f"write {_argument(sink)}=['zone', 'day']", place=place
        )
    if len({key.lower() for key in keys}) < len(keys):
        raise DefinitionError(f"{sink}({_argument(sink)}={keys!r}) names a column twice", fix="name each once", place=place)
    emitter, behind = _emitter_behind(node)
    lowered = {key.lower() for key in keys}
    lost = next((step for step in behind if not _keeps(step, REPLACES)), None)
    own = kind_of(emitter).upsert_keys(emitter) if isinstance(emitter, StatefulNode) else None
    if own is not None and own.replaces and set(own.moving) <= lowered and lost is not None:
        raise DefinitionError(
            f"{sink}({_argument(sink)}={keys!r}) has both bounds of a session, which move when it grows, and {REPLACES!r}, which lists its "
            f"earlier ones, is dropped or changed at {lost.place}: the older row would stay",
            fix=f"keep {REPLACES!r} as it is, or leave {END!r} out",
            place=place,
        )
    schema = schema_of(node)
    if schema is None:
        return tuple(keys)
    found = []
    for key in keys:
        column = schema.find(key)
        if column is None:
            near = schema.nearest(key)
            hint = f"; did you mean {near!r}?" if near else "."
            raise ColumnError(
                f"{sink}({_argument(sink)}=...) names unknown column {key!r}{hint} The columns are: {', '.join(schema.names)}",
                fix=f"write {near!r}" if near else "name columns of the stream",
                place=place,
            )
        if column.type is not None and "MAP<" in column.type:
            raise DefinitionError(
                f"{sink}({_argument(sink)}=...) names {key!r} of type {column.type}, and maps cannot be compared",
                fix="name other columns",
                place=place,
            )
        found.append(column.name)
    return tuple(found)


def _keys_of_results(node: Node, place: str, sink: str, mode: str) -> tuple[str, ...]:
    emitter, behind = _emitter_behind(node)
    own = kind_of(emitter).upsert_keys(emitter) if isinstance(emitter, StatefulNode) else None
    if own is None:
        raise DefinitionError(
            f"{sink}(mode={mode!r}) does not know by which columns a row replaces an older one",
            fix=f"name them: {_argument(sink)}=['zone', 'day']; only changelogs and the results of windows have default keys",
            place=place,
        )
    for key in (*own.columns, *((own.replaces,) if own.replaces else ())):
        changed = next((step for step in behind if not _keeps(step, key)), None)
        if changed is not None:
            _refuse(key, changed, place, sink)
    return own.columns


def _emitter_behind(node: Node) -> tuple[Node, list[SelectNode | WithColumnsNode]]:
    """Return the node whose rows come to an output, and the steps in between that make columns."""
    behind: list[SelectNode | WithColumnsNode] = []
    while isinstance(node, FilterNode | SelectNode | WithColumnsNode):
        if not isinstance(node, FilterNode):
            behind.append(node)
        node = node.input
    return node, behind


def _keeps(step: SelectNode | WithColumnsNode, name: str) -> bool:
    """Whether a column comes out of a step under its name, spelt as it was, and unchanged."""
    made = [(made, expression) for made, expression in step.columns if made.lower() == name.lower()]
    if not made:
        return isinstance(step, WithColumnsNode)
    spelt, expression = made[0]
    return spelt == name and _is_column(expression, name)


def _is_column(expression: Expression, name: str) -> bool:
    return isinstance(expression, str) and expression.strip().strip("`").lower() == name.lower()


def _refuse(key: str, step: Node, place: str, sink: str) -> NoReturn:
    what = "lists which sessions it replaces" if key == REPLACES else "is part of the key of the window's results"
    keep = "" if key == REPLACES else f", or name other columns in {_argument(sink)}=[...]"
    raise DefinitionError(
        f"{sink}(mode='upsert') needs column {key!r}, which {what}, and it is dropped or changed at {step.place}",
        fix=f"keep {key!r} as it is{keep}",
        place=place,
    )


def _argument(sink: str) -> str:
    """Return the argument by which a sink takes the keys, for messages."""
    return "key" if sink == "kafka_sink" else "keys"
