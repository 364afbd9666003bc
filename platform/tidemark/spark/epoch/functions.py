"""Python functions over elements, on Arrow batches, with the engine's own columns carried along."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from pyspark.sql.types import StructType

from tidemark.errors import UserCodeError
from tidemark.graph.model.nodes import FunctionNode
from tidemark.spark.columns.arrow_batches import POSITION_ROW, position_of_parts, position_parts
from tidemark.spark.columns.expressions import MAX_PIECES, POSITION, hidden_of, quoted, visible_of
from tidemark.spark.columns.schemas import struct_of
from tidemark.spark.columns.typed_batches import MisfitColumnError, typed_batch
from tidemark.spark.columns.user_values import MisfitError, coerce_batch
from tidemark.spark.frame_steps import FrameSteps
from tidemark.spark.operators.keyed.python_values import not_utf8, python_rows

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame


class Declared(NamedTuple):
    """The operator and the line that declares it, for errors."""

    name: str
    place: str


def apply_function(node: FunctionNode, rows: DataFrame, name: str) -> DataFrame:
    """Return the rows after a map or flat_map; each result keeps its element's event time, and gets a position next to the element's.

    Raises:
        UserCodeError: in the task, when the function does not return its declared rows.
    """
    engine = hidden_of(rows.columns)
    visible = visible_of(rows.columns)
    has_positions = POSITION in engine
    if has_positions:
        plain = [column for column in engine if column != POSITION]
        rows = FrameSteps(rows).select(*map(quoted, visible), *plain, *position_parts()).frame()
    hidden = [column for column in rows.columns if column not in visible]
    made = struct_of(node.schema)
    schema = StructType([*made.fields, *(rows.schema[column] for column in hidden)])
    declared = Declared(name, node.place)
    if node.batches:
        run = _on_batches(node.function, made, visible, hidden, declared)
    else:
        run = _on_rows(node.function, made, visible, hidden, declared, many=node.kind == "flat_map")
    found = rows.mapInArrow(run, schema)
    if not has_positions:
        return found
    return found.select(*map(quoted, made.names), *(position_of_parts() if column == POSITION else column for column in engine))


_Batches = Callable[[Iterator["pa.RecordBatch"]], Iterator["pa.RecordBatch"]]


def _on_batches(function: Callable[..., object], made: StructType, visible: list[str], hidden: list[str], declared: Declared) -> _Batches:
    from pyspark.sql.pandas.types import to_arrow_schema

    schema = to_arrow_schema(made, timezone="UTC")

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa

        for batch in batches:
            after = function(batch.select(visible))
            if not isinstance(after, pa.RecordBatch) or after.num_rows != batch.num_rows:
                raise UserCodeError(
                    f"the batch function returned {_described(after)} for a batch of {batch.num_rows} rows",
                    fix="return a pyarrow.RecordBatch with one row for each input row; use flat_map for other counts",
                    uid=declared.name,
                    place=declared.place,
                )
            try:
                after = typed_batch(after, schema)
            except MisfitColumnError as misfit:
                raise UserCodeError(
                    f"the batch function returned a batch whose {misfit}",
                    fix="return a batch with the columns of returns=..., each of its type",
                    uid=declared.name,
                    place=declared.place,
                ) from None
            columns = [*after.columns, *(batch.column(column) for column in hidden)]
            yield pa.RecordBatch.from_arrays(columns, names=[*after.schema.names, *hidden])

    return run


def _on_rows(
    function: Callable[..., object], made: StructType, visible: list[str], hidden: list[str], declared: Declared, *, many: bool
) -> _Batches:
    from pyspark.sql.pandas.types import to_arrow_schema

    schema = to_arrow_schema(made, timezone="UTC")

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa

        for batch in batches:
            results: list[Mapping[str, Any]] = []
            parents: list[int] = []
            places: list[int] = []
            try:
                rows = python_rows(batch.select(visible))
            except UnicodeDecodeError as error:
                raise not_utf8(error, uid=declared.name, place=declared.place) from None
            for number, row in enumerate(rows):
                for place, result in enumerate(_results(function(row), declared, many=many)):
                    results.append(result)
                    parents.append(number)
                    places.append(place)
            try:
                table = coerce_batch(results, schema)
            except MisfitError as misfit:
                raise UserCodeError(
                    f"the function returned {misfit}",
                    fix="return values of the types in returns=...",
                    uid=declared.name,
                    place=declared.place,
                ) from None
            except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
                raise UserCodeError(
                    f"the function returned a row that does not fit its columns: {error}",
                    fix="return values of the types in returns=...",
                    uid=declared.name,
                    place=declared.place,
                ) from error
            carried = batch.select(hidden).take(pa.array(parents, pa.int32()))
            if many and POSITION_ROW in hidden:
                carried = carried.set_column(hidden.index(POSITION_ROW), POSITION_ROW, _nth_rows(carried[POSITION_ROW], places))
            yield pa.RecordBatch.from_arrays([*table.columns, *carried.columns], names=[*schema.names, *hidden])

    return run


def _nth_rows(rows: pa.Array, places: list[int]) -> pa.Array:
    """Return the last parts of the positions of rows made from rows with these parts, as ``nth_position`` does."""
    import pyarrow as pa
    import pyarrow.compute as pc

    nth = pc.min_element_wise(pa.array(places, pa.int64()), MAX_PIECES - 1)
    return pc.bit_wise_or(pc.multiply(rows, MAX_PIECES), nth)


def _results(returned: object, declared: Declared, *, many: bool) -> Iterable[Mapping[str, Any]]:
    results = returned if many else (returned,)
    if not isinstance(results, Iterable):
        raise _not_rows(returned, declared)
    for result in results:
        if not isinstance(result, Mapping):
            raise _not_rows(result, declared)
        yield result


def _not_rows(returned: object, declared: Declared) -> UserCodeError:
    return UserCodeError(
        f"the function returned {_described(returned)}, not a row",
        fix="return a dict of column name to value (map), or an iterable of such dicts (flat_map)",
        uid=declared.name,
        place=declared.place,
    )


def _described(value: object) -> str:
    rows = getattr(value, "num_rows", None)
    return f"{type(value).__name__} of {rows} rows" if rows is not None else type(value).__name__
