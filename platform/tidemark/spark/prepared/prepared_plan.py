"""The physical plan of a DataFrame over files, run again over other files.

It is not analysed, optimised and planned again, and its rows are not written by Spark, which together costs more than a pass over a
few thousand rows does. PySpark has no such thing, so the plan is bound in Java, by a class of this package that Spark's own compiler
for generated code compiles in each JVM, in about 50 milliseconds.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
from pyspark.serializers import CPickleSerializer
from pyspark.sql import DataFrame
from pyspark.sql import types as T
from pyspark.sql.pandas.types import to_arrow_schema

from tidemark.spark.compiled_java import new_object

if TYPE_CHECKING:
    from py4j.java_gateway import JavaObject
    from pyspark.sql import Observation, Row, SparkSession

_SEPARATOR: Final = "\0"
_SCAN_SEPARATOR: Final = "\1"
_CLASS: Final = "PreparedPlan"
_WRITABLE: Final = (
    T.BooleanType,
    T.ByteType,
    T.ShortType,
    T.IntegerType,
    T.LongType,
    T.FloatType,
    T.DoubleType,
    T.DecimalType,
    T.BinaryType,
    T.DateType,
    T.TimestampType,
    T.TimestampNTZType,
)
"""Types that Arrow writes to Parquet as Spark does, besides strings without a length or collation."""


@dataclass(frozen=True)
class PassRows:
    """The rows of a pass, their columns as Spark has them, and the values of each of its observations by their names."""

    table: pa.Table
    schema: T.StructType
    observed: Sequence[Mapping[str, object]]


@dataclass(frozen=True)
class WrittenRows:
    """The rows of a pass, to be written once; ``observe`` returns the values of its observations then."""

    frame: DataFrame
    observe: Callable[[], Sequence[Mapping[str, object]]]

    @cached_property
    def observed(self) -> Sequence[Mapping[str, object]]:
        """The values of each of its observations by their names, once the rows were written."""
        return self.observe()


class PreparedPlan:
    """The plan of a DataFrame that reads nothing but files.

    Args:
        frame: the DataFrame, with placeholders where numbers change.
        observations: all those in it.
        several: whether its rows are written by several tasks (``rows``), and not returned by one (``run``).

    Raises:
        py4j.protocol.Py4JError: its plan has another shape, or its rows would differ in each run.
    """

    def __init__(self, frame: DataFrame, observations: Sequence[Observation] = (), *, several: bool = False) -> None:
        self.schema = frame.schema
        self._names = [each._jo.name() for each in observations]  # type: ignore[union-attr]  # noqa: SLF001
        self._session = session = frame.sparkSession
        self._arrow = to_arrow_schema(self.schema, timezone="UTC")
        self._rows_to_python = session.sparkContext._jvm.org.apache.spark.sql.api.python.PythonSQLUtils  # type: ignore[union-attr]  # noqa: SLF001
        self._plan: JavaObject = new_object(session, __package__, _CLASS, frame._jdf, several)  # noqa: SLF001

    @property
    def writable(self) -> bool:
        """Whether its rows can be written to Parquet from Arrow as Spark would write them."""
        return is_writable(self.schema)

    def belongs_to(self, session: SparkSession) -> bool:
        """Whether a session made it."""
        return bool(self._session._jsparkSession == session._jsparkSession)  # noqa: SLF001

    def equals(self, frame: DataFrame, paths: Sequence[Sequence[str]], numbers: Mapping[int, int]) -> bool:
        """Whether this plan, bound, is that of a DataFrame; arguments as of ``run``."""
        return bool(self._plan.equalTo(frame._jdf, _scans(paths), _pairs(numbers)))  # noqa: SLF001

    def run(self, paths: Sequence[Sequence[str]], numbers: Mapping[int, int]) -> PassRows:
        """Return the rows; one Spark job.

        Args:
            paths: the files that each scan of the plan is to read, as Hadoop's paths, in the order in which the DataFrame was made of them.
            numbers: by their placeholders.

        Raises:
            py4j.protocol.Py4JError: the job failed.
        """
        with _file() as file:
            found = list(self._plan.run(_scans(paths), _pairs(numbers), str(file)))
            table = pa.Table.from_batches(list(_batches(file, self._arrow)), self._arrow)
        return PassRows(table, self.schema, self._observed(found))

    def rows(self, paths: Sequence[Sequence[str]], numbers: Mapping[int, int]) -> WrittenRows:
        """Return the rows to be written, where the plan was made for ``several`` tasks; arguments as of ``run``."""
        frame = DataFrame(self._plan.rows(_scans(paths), _pairs(numbers)), self._session)
        return WrittenRows(frame, lambda: self._observed(list(self._plan.observed())))

    def _observed(self, found: Sequence[Any]) -> Sequence[Mapping[str, object]]:
        rows = dict(zip(found[::2], found[1::2], strict=True))
        return [self._values(rows[name]) for name in self._names]

    def _values(self, row: JavaObject) -> Mapping[str, object]:
        values: Row = CPickleSerializer().loads(self._rows_to_python.toPyRow(row))  # type: ignore[no-untyped-call]
        return values.asDict()


def _scans(paths: Sequence[Sequence[str]]) -> str:
    return _SCAN_SEPARATOR.join(map(_SEPARATOR.join, paths))


def _pairs(numbers: Mapping[int, int]) -> str:
    return _SEPARATOR.join(str(number) for pair in numbers.items() for number in pair)


@contextmanager
def _file() -> Iterator[Path]:
    """Yield a local file for rows: through py4j's socket, more than a few kilobytes take 40 milliseconds."""
    with tempfile.NamedTemporaryFile(prefix="tidemark-rows-") as file:
        yield Path(file.name)


def _batches(file: Path, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    with pa.BufferReader(file.read_bytes()) as stream:
        while stream.tell() < stream.size():
            yield pa.ipc.read_record_batch(pa.ipc.read_message(stream), schema)


def is_writable(kind: T.DataType) -> bool:
    """Whether values of a type can be written to Parquet from Arrow as Spark would write them."""
    if isinstance(kind, T.StructType):
        return bool(kind.fields) and all(is_writable(field.dataType) for field in kind)
    if isinstance(kind, T.ArrayType):
        return is_writable(kind.elementType)
    if isinstance(kind, T.MapType):
        return is_writable(kind.keyType) and is_writable(kind.valueType)
    return isinstance(kind, _WRITABLE) or kind == T.StringType()
