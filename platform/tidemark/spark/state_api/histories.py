"""Histories that state is made from, as rows of an operator's inputs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from tidemark.errors import DefinitionError
from tidemark.graph.checks.changelogs import changelog_keys
from tidemark.graph.model.nodes import StatefulNode
from tidemark.semantics.changelog.row_kinds import RowKind
from tidemark.spark.columns.changes import COUNT
from tidemark.spark.columns.expressions import CHANGE, POSITION, SPLIT, TIME, quoted, visible_of


def histories_of(
    node: StatefulNode, history: DataFrame | Mapping[str, DataFrame], columns: Mapping[str, T.StructType], time: str
) -> Mapping[str, DataFrame]:
    """Return histories as rows of an operator's inputs, by port; the rows of a changelog are inserts.

    Args:
        node: the operator.
        history: the rows of its input; of several, by port.
        columns: of each input, the engine's among them.
        time: SQL of a row's event time: a TIMESTAMP, or a BIGINT of milliseconds.

    Raises:
        DefinitionError: an input is unknown, or a changelog and missing; a history lacks a column, or has of a changelog a key twice or a
            row without an event time.
    """
    uid, found = node.uid or "", {}
    changelogs = [port.name for port in node.ports if changelog_keys(port.node) is not None]
    for port, rows in _by_port(history, list(columns), changelogs, uid).items():
        given = next(each.node for each in node.ports if each.name == port)
        keys = changelog_keys(given)
        elements = _as_elements(rows, columns[port], time, uid)
        if keys is not None:
            _check_rows(elements, keys, uid, port)
        found[port] = elements.where(f"{TIME} IS NOT NULL")
    return found


def _by_port(
    history: DataFrame | Mapping[str, DataFrame], ports: Sequence[str], changelogs: Sequence[str], uid: str
) -> Mapping[str, DataFrame]:
    """Return the history of each input of an operator."""
    if isinstance(history, Mapping):
        unknown = next((name for name in history if name not in ports), None)
        missing = next((name for name in changelogs if name not in history), None)
        if unknown is None and missing is None:
            return history
        if unknown is None:
            fix = "give its content, a DataFrame without rows if it has none"
            raise DefinitionError(f"the content of the input {missing!r} of {uid!r} is not given", fix=fix, uid=uid)
        raise DefinitionError(f"{uid!r} has no input {unknown!r}", fix=f"name one that it has: {', '.join(ports)}", uid=uid)
    if len(ports) > 1:
        shown = ", ".join(f"{port!r}: ..." for port in ports)
        raise DefinitionError(f"{uid!r} has several inputs", fix=f"give the history of each: {{{shown}}}", uid=uid)
    return {ports[0]: history}


def _as_elements(history: DataFrame, columns: T.StructType, time: str, uid: str) -> DataFrame:
    """Return a history as rows of an operator's input."""
    names, types = columns.names, {field.name: field.dataType.simpleString() for field in columns}
    lower = {name.lower() for name in history.columns}
    missing = [name for name in visible_of(names) if name.lower() not in lower]
    if missing:
        raise DefinitionError(
            f"the history has no column {missing[0]!r}, which is in the input of {uid!r}",
            fix=f"give it the columns {', '.join(visible_of(names))}, null where there is nothing",
            uid=uid,
        )
    kind = history.select(F.expr(time).alias("t")).schema["t"].dataType.simpleString()
    stamp = F.expr(time).cast("bigint") if kind in {"int", "bigint"} else F.unix_millis(F.expr(time).cast("timestamp"))
    row = F.monotonically_increasing_id().alias("row")
    position = F.struct(F.lit("history").alias("origin"), F.lit(0).cast("bigint").alias("block"), row)
    hidden = {TIME: stamp, POSITION: position, SPLIT: F.lit(None), CHANGE: F.lit(int(RowKind.INSERT))}
    made = [F.col(quoted(name)).cast(types[name]).alias(name) for name in visible_of(names)]
    made += [column.cast(types[name]).alias(name) for name, column in hidden.items() if name in names]
    return history.select(*made)


def _check_rows(rows: DataFrame, keys: Sequence[str], uid: str, port: str) -> None:
    """Check that no key comes twice, and that each row has an event time; one Spark job."""
    whole = F.to_json(F.struct(*(F.col(quoted(key)) for key in keys))) if keys else F.lit("{}")
    counted = rows.groupBy(*map(quoted, keys)).agg(F.count(F.lit(1)).alias(COUNT), F.count(TIME).alias(TIME))
    some = counted.where(f"{COUNT} > 1 OR {TIME} < {COUNT}").select(whole, COUNT).first()
    if some is not None and some[COUNT] == 1:
        raise DefinitionError(
            f"the history of the input {port!r} of {uid!r} has no event time in the row of the key {some[0]}, which would be left out",
            fix="give each row a time: time='coalesce(updated_at, created_at)'",
            uid=uid,
        )
    if some is not None:
        raise DefinitionError(
            f"the history of the input {port!r} of {uid!r} has the key {some[0]} more than once, and a changelog has one row for each key",
            fix="give the content of the changelog: of each key the newest row",
            uid=uid,
        )
