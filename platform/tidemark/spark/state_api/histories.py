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
        DefinitionError: an input is missing or unknown, a history lacks a column, or has a key of a changelog twice.
    """
    uid, found = node.uid or "", {}
    for port, rows in _by_port(history, list(columns), uid).items():
        given = next(each.node for each in node.ports if each.name == port)
        keys = changelog_keys(given)
        elements = _as_elements(rows, columns[port], time, uid)
        if keys is not None:
            _check_keys(elements, keys, uid, port)
        found[port] = elements
    return found


def _by_port(history: DataFrame | Mapping[str, DataFrame], ports: list[str], uid: str) -> Mapping[str, DataFrame]:
    """Return the history of each input of an operator."""
    if isinstance(history, Mapping):
        unknown = next((name for name in history if name not in ports), None)
        if unknown is None:
            return history
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
    return history.select(*made).where(f"{TIME} IS NOT NULL")


def _check_keys(rows: DataFrame, keys: Sequence[str], uid: str, port: str) -> None:
    """Check that no key comes twice; one Spark job."""
    whole = F.to_json(F.struct(*(F.col(quoted(key)) for key in keys))) if keys else F.lit("{}")
    some = rows.groupBy(*map(quoted, keys)).agg(F.count(F.lit(1)).alias(COUNT)).where(f"{COUNT} > 1").select(whole).first()
    if some is not None:
        raise DefinitionError(
            f"the history of the input {port!r} of {uid!r} has the key {some[0]} more than once, and a changelog has one row for each key",
            fix="give the content of the changelog: of each key the newest row",
            uid=uid,
        )
