"""The output rows of a task, collected by tag into Arrow batches of one schema."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from tidemark.errors import UserCodeError
from tidemark.spark.columns.user_values import MisfitError, coerce_batch
from tidemark.spark.operators.keyed.columns import TAG
from tidemark.spark.operators.keyed.rows import Place, table_of

if TYPE_CHECKING:
    import pyarrow as pa

MAX_ROWS: Final = 5_000
MAX_BATCHES: Final = 32
"""A buffered row keeps its input batch in memory."""


Carried = Callable[[Mapping[str, str]], "pa.Table"]
"""Returns columns of the input rows of some rows; they are given as names in the input by names in the result."""


@dataclass(frozen=True)
class Shape:
    """The columns of a tag's rows: ``carried`` from their input row, ``made`` by the task, ``results`` of the user's function.

    ``results`` are names in the dicts that the function returns, by names of columns, and ``required`` those that may not be null.
    """

    carried: tuple[str, ...] = ()
    made: tuple[str, ...] = ()
    results: Mapping[str, str] = field(default_factory=dict)
    required: frozenset[str] = frozenset()


class _Added(NamedTuple):
    """A row: its input row, its values, and of those that a function returned the row and its origin."""

    place: Place
    values: tuple[object, ...]
    result: Mapping[str, object] | None
    origin: object


class Block(NamedTuple):
    """Rows that are added at once: their input row, their number, the columns that their shape has as ``made``, and the function's."""

    place: Place
    size: int
    made: tuple[pa.Array, ...]
    results: pa.RecordBatch


class OutputBuffer:
    """Collects rows until there are enough of them.

    Args:
        schema: of all rows; a row has nulls where its tag has no column.
        shapes: of the rows, by tag.
        uid: of the operator, for errors.
        function: the name of the function that returns results, for errors.
    """

    def __init__(self, schema: pa.Schema, shapes: Mapping[int, Shape], uid: str, function: str = "the function") -> None:
        self._schema = schema
        self._shapes = shapes
        self._uid = uid
        self._function = function
        self._sections: dict[int, list[_Added]] = {}
        self._blocks: dict[int, list[Block]] = {}
        self._rows = 0
        self._batches: set[int] = set()
        self._newest: pa.RecordBatch | None = None
        self.is_full = False
        """Whether enough rows were collected."""

    def add(
        self, tag: int, place: Place, values: tuple[object, ...] = (), result: Mapping[str, object] | None = None, origin: object = ""
    ) -> None:
        """Add a row.

        Args:
            tag: of the row.
            place: its input row.
            values: of the columns that its shape has as ``made``.
            result: the function's result.
            origin: key and window of the result, for errors; converted to text only then.
        """
        section = self._sections.get(tag)
        if section is None:
            section = self._sections[tag] = []
        # This is ``_Added(...)``, in half the time.
        section.append(tuple.__new__(_Added, (place, values, result, origin)))
        self._rows += 1
        if place.batch is not self._newest:
            self._hold(place.batch)
        if self._rows >= MAX_ROWS:
            self.is_full = True

    def add_block(self, tag: int, block: Block) -> None:
        """Add rows; their results have the names and types of the shape's ``results``, in its order."""
        if not block.size:
            # A tag of such blocks alone would come out as a batch without rows, which no reader can tell the tag of.
            return
        self._blocks.setdefault(tag, []).append(block)
        self._rows += block.size
        self._hold(block.place.batch)
        if self._rows >= MAX_ROWS:
            self.is_full = True

    def _hold(self, batch: pa.RecordBatch) -> None:
        """Count a batch that rows refer to."""
        self._newest = batch
        self._batches.add(id(batch))
        if len(self._batches) >= MAX_BATCHES:
            self.is_full = True

    def has_fractions(self, tag: int) -> bool:
        """Return whether a tag's rows have columns of floating-point numbers, or of such in others, which the task makes."""
        made = self._shapes[tag].made if tag in self._shapes else ()
        return any(kind in str(self._schema.field(name).type) for name in made for kind in ("double", "float"))

    def result_schema(self, tag: int) -> pa.Schema:
        """Return the columns of a tag's results as the function names them."""
        import pyarrow as pa

        shape = self._shapes[tag]
        kinds = {shown: self._schema.field(name).type for name, shown in shape.results.items()}
        return pa.schema([pa.field(shown, kind, nullable=shown not in shape.required) for shown, kind in kinds.items()])

    def full_batches(self) -> Iterator[pa.RecordBatch]:
        """Yield the collected rows, once there are enough."""
        if self.is_full:
            yield from self.remaining_batches()

    def remaining_batches(self) -> Iterator[pa.RecordBatch]:
        """Yield the collected rows.

        Raises:
            UserCodeError: a result does not fit the function's columns.
        """
        for tag, section in self._sections.items():
            yield self._batch(tag, section)
        for tag, blocks in self._blocks.items():
            yield self._of_blocks(tag, self._shapes[tag], blocks)
        self._blocks = {}
        self._sections, self._rows, self._batches = {}, 0, set()
        self._newest, self.is_full = None, False

    def _batch(self, tag: int, section: Sequence[_Added]) -> pa.RecordBatch:
        places, values, results, origins = zip(*section, strict=True)
        return self.batch_of(tag, lambda columns: table_of(places, columns), tuple(zip(*values, strict=True)), results, origins)

    def batch_of(
        self, tag: int, carried: Carried, made: Sequence[Sequence[object]], results: Sequence[Any], origins: Iterable[object]
    ) -> pa.RecordBatch:
        """Return rows as a batch, apart from those that were added.

        Args:
            tag: of the rows.
            carried: returns columns of their input rows.
            made: the columns that their shape has as ``made``.
            results: the rows of the function; as many ``None`` where their shape has none.
            origins: key and window of each result, for errors; asked for only then.

        Raises:
            UserCodeError: a result does not fit the function's columns.
        """
        import pyarrow as pa

        shape, count = self._shapes[tag], len(results)
        found: dict[str, pa.Array] = {TAG: pa.array([tag] * count, self._schema.field(TAG).type)}
        if shape.carried:
            table = carried({name: name for name in shape.carried}).combine_chunks()
            found |= {name: _whole(table.column(name)) for name in shape.carried}
        for name, column in zip(shape.made, made, strict=True):
            found[name] = pa.array(column, self._schema.field(name).type)
        if shape.results:
            found |= self._results(tag, results, origins)
        columns = [self._typed(field, found.get(field.name), count) for field in self._schema]
        return pa.RecordBatch.from_arrays(columns, schema=self._schema)

    def _of_blocks(self, tag: int, shape: Shape, blocks: Sequence[Block]) -> pa.RecordBatch:
        import pyarrow as pa

        count = sum(block.size for block in blocks)
        found: dict[str, pa.Array] = {TAG: pa.array([tag] * count, self._schema.field(TAG).type)}
        numbers = [pa.array([block.place.number] * block.size, pa.int32()) for block in blocks]
        for name in shape.carried:
            repeated = [block.place.batch.column(name).take(number) for block, number in zip(blocks, numbers, strict=True)]
            found[name] = pa.concat_arrays(repeated)
        for number, name in enumerate(shape.made):
            found[name] = pa.concat_arrays([block.made[number] for block in blocks])
        for number, name in enumerate(shape.results):
            found[name] = pa.concat_arrays([block.results.column(number) for block in blocks])
        columns = [self._typed(field, found.get(field.name), count) for field in self._schema]
        return pa.RecordBatch.from_arrays(columns, schema=self._schema)

    def _typed(self, field: pa.Field, column: pa.Array | None, count: int) -> pa.Array:
        import pyarrow as pa

        if column is None:
            return pa.nulls(count, field.type)
        return column if column.type == field.type else column.cast(field.type)

    def _results(self, tag: int, rows: Sequence[Mapping[str, object]], origins: Iterable[object]) -> dict[str, pa.Array]:
        import pyarrow as pa

        names = self._shapes[tag].results
        known = frozenset(names.values())
        if not known.issuperset(chain.from_iterable(rows)):
            row, origin = next((row, origin) for row, origin in zip(rows, origins, strict=True) if not row.keys() <= known)
            unknown = [name for name in row if name not in known]
            raise UserCodeError(
                f"{self._function} returned a row with a column {unknown[0]!r}, which it does not declare, {origin}",
                fix=f"name it in returns=..., or return only {', '.join(names.values())}",
                uid=self._uid,
            )
        schema = self.result_schema(tag)
        try:
            made = coerce_batch(rows, schema)
        except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
            raise self._misfit(schema, rows, origins, error) from error
        return dict(zip(names, made.columns, strict=True))

    def _misfit(
        self, schema: pa.Schema, rows: Sequence[Mapping[str, object]], origins: Iterable[object], error: Exception
    ) -> UserCodeError:
        """Return the error for the first row that does not fit."""
        import pyarrow as pa

        where: object = ""
        why = error
        for row, origin in zip(rows, origins, strict=True):
            try:
                coerce_batch([row], schema)
            except (pa.ArrowException, TypeError, ValueError, OverflowError) as found:
                where, why = origin, found
                break
        said = "returned" if isinstance(why, MisfitError) else "returned a row that does not fit its columns:"
        return UserCodeError(
            f"{self._function} {said} {' '.join(str(why).split())}, {where}",
            fix="return values of the types in returns=..., or of the side output's columns",
            uid=self._uid,
        )


def _whole(column: pa.ChunkedArray) -> pa.Array:
    import pyarrow as pa

    return column.chunk(0) if column.num_chunks == 1 else pa.concat_arrays(column.chunks)
