"""Streaming readers of the graph's sources, each named, with the columns that the engine adds to the user's."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial, reduce
from typing import TYPE_CHECKING

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import LongType, StructField, StructType

from tidemark.errors import SourceError
from tidemark.graph.job.local_folders import require_folder
from tidemark.graph.model.nodes import PATTERN_CHARACTERS, SourceNode
from tidemark.graph.model.postgres_changes_spec import PostgresChangesSpec
from tidemark.graph.model.source_specs import DeltaTableSpec, ElementsSpec, FilesSpec, FormatSpec, RateSpec, SourceSpec
from tidemark.spark.columns.error_text import first_line
from tidemark.spark.columns.expressions import CORRUPT, SOURCE, SPLIT, quoted
from tidemark.spark.columns.few_rows import has_few_lines, has_few_records, has_few_rows, in_one_task
from tidemark.spark.columns.schemas import may_forbid_nulls, nullable, struct_of
from tidemark.spark.env.file_systems import readable
from tidemark.spark.file_relation import read_json, read_parquet
from tidemark.spark.frame_steps import FrameSteps
from tidemark.spark.sources.delta_tables.table_rows import table_schema
from tidemark.spark.sources.elements import store_elements
from tidemark.spark.sources.epoch_input import EpochInput
from tidemark.spark.sources.files.file_types import require_types_of_files
from tidemark.spark.sources.files.folder_columns import files_by_columns, folder_fix
from tidemark.spark.sources.intake import BLOCK, PATH, ROW, SourceRows
from tidemark.spark.sources.intake_limits import DEFAULT_BYTES_PER_EPOCH, KAFKA
from tidemark.spark.sources.kafka.decoding import decoded
from tidemark.spark.sources.kafka.options import resolved
from tidemark.spark.sources.kafka.remade_topics import require_same_topics, resumed
from tidemark.spark.sources.kafka_errors import connector_missing
from tidemark.spark.sources.postgres_changes.captured_files import captured_schema
from tidemark.spark.sources.source_ends import moved_splits
from tidemark.state.encoding.redaction import redacted, without_secrets
from tidemark.state.log.offset_log import log_offset, positions
from tidemark.state.store.store import JobStore

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.readwriter import DataStreamReader

_NEVER_TOO_OLD = "36500d"
MARKS_CORRUPT = ("json", "csv")
_FILE_POSITION = (f"_metadata.file_path AS {PATH}", f"_metadata.file_block_start AS {BLOCK}")
_KNOWN = {"parquet": read_parquet, "json": read_json}
"""Formats of files that are read by one call."""


def open_source(
    spark: SparkSession, node: SourceNode, elements: JobStore, *, ordered: bool, read: int, position: object = None
) -> DataFrame:
    """Return a source as a streaming DataFrame.

    Args:
        spark: the session the job runs in.
        node: the source.
        elements: the store of elements given in the program.
        ordered: whether rows need a position.
        read: the number of files of elements that the job has committed.
        position: after the newest epoch, None before the first.

    Raises:
        SourceError: the files' folder is missing, or the format is missing or rejects its options.
        DefinitionError: an element does not fit the schema, or one that was read has changed.
    """
    spec = node.spec
    reader = spark.readStream.name(node.name)
    with _opening(node):
        if isinstance(spec, ElementsSpec):
            folder, schema = _stored(node, spec, elements, read)
            return reader.format("parquet").schema(schema).options(maxFilesPerTrigger="1", maxFileAge=_NEVER_TOO_OLD).load(folder)
        if isinstance(spec, FilesSpec):
            return _files(reader, node, spec, readable(spark, spec.path), ordered=ordered)
        if isinstance(spec, RateSpec):
            reader = reader.format("rate").option("rowsPerSecond", spec.rows_per_second)
            return (reader.option("numPartitions", spec.partitions) if spec.partitions else reader).load()
        if isinstance(spec, DeltaTableSpec):
            return _no_stream(reader, table_schema(spec))
        if isinstance(spec, PostgresChangesSpec):
            return _no_stream(reader, captured_schema(spec))
        given = resolved(node, spec)
        return _format(reader, given if position is None or given.format.lower() != KAFKA else resumed(given))


@contextmanager
def _opening(node: SourceNode) -> Iterator[None]:
    try:
        yield
    except (PySparkException, Py4JJavaError) as error:
        known = connector_missing(node.spec, str(error)) or folder_fix(redacted(str(error)))
        raise SourceError(
            f"source {node.name!r} cannot be opened: {first_line(error).removesuffix(':')}",
            fix=known or "check the path, the format's name and its options",
            uid=node.name,
            place=node.place,
        ) from without_secrets(error)


def open_sources(
    spark: SparkSession, sources: Sequence[SourceNode], elements: JobStore, *, ordered: Collection[str], offsets: str
) -> DataFrame:
    """Return all sources as one streaming DataFrame.

    Args:
        spark: the session the job runs in.
        sources: with the bounds of an epoch.
        elements: the store of elements given in the program.
        ordered: names of those whose rows need a position.
        offsets: of the newest epoch, empty before the first.

    Raises:
        SourceError, DefinitionError: as ``open_source`` does.
    """
    before = positions(offsets)
    return pack(
        {
            source.name: open_source(
                spark,
                source,
                elements,
                ordered=source.name in ordered,
                read=log_offset(before.get(source.name)) + 1,
                position=before.get(source.name),
            )
            for source in sources
        }
    )


def check_sources(
    spark: SparkSession, sources: Sequence[SourceNode], elements: JobStore, *, ordered: Collection[str], offsets: str
) -> None:
    """Store elements, and raise what is wrong with a source, for epochs that need no query; arguments and errors as of ``open_sources``."""
    before = positions(offsets)
    for source in sources:
        position = before.get(source.name)
        read = log_offset(position) + 1
        if isinstance(source.spec, ElementsSpec):
            with _opening(source):
                _stored(source, source.spec, elements, read)
        else:
            open_source(spark, source, elements, ordered=source.name in ordered, read=read, position=position)


def reads_files(node: SourceNode) -> bool:
    """Whether an epoch's rows are read from its files directly, instead of from the batch of a query.

    Spark can then prune columns, skip row groups and compile one pass.
    """
    return isinstance(node.spec, ElementsSpec | FilesSpec)


def read_files_of_epoch(spark: SparkSession, node: SourceNode, paths: Sequence[str], *, ordered: bool) -> FrameSteps:
    """Return the rows of the files that an epoch reads, with every column also of records that could not be parsed."""
    spec = node.spec
    if isinstance(spec, ElementsSpec):
        schema = _element_columns(spec)
        return FrameSteps(read_parquet(spark, paths, schema, {}) if _is_plain(spec, paths) else spark.read.schema(schema).parquet(*paths))
    if not isinstance(spec, FilesSpec):
        raise TypeError(type(spec).__name__)
    parts = [_read_together(spark, spec, part, ordered=ordered) for part in files_by_columns(spec, paths)]
    return parts[0] if len(parts) == 1 else FrameSteps(reduce(DataFrame.union, (part.frame() for part in parts)))


def _read_together(spark: SparkSession, spec: FilesSpec, paths: Sequence[str], *, ordered: bool) -> FrameSteps:
    """Return the rows of files whose folders name the same columns."""
    schema, options = _columns_and_options(spec)
    names = schema.names
    if spec.format in _KNOWN and not spec.options and _is_plain(spec, paths):
        frame = _KNOWN[spec.format](spark, paths, schema, options)
    else:
        reader = spark.read
        if not any(character in spec.path for character in PATTERN_CHARACTERS):
            reader = reader.option("basePath", readable(spark, spec.path))
        frame = reader.format(spec.format).schema(schema).options(**options).load([escaped(path) for path in paths])
    rows = FrameSteps(frame)
    # Spark adds columns that folders name and the schema does not, with types that it guesses of their values.
    declared = [*map(quoted, names)] if any("=" in path for path in paths) else ["*"]
    if ordered or declared != ["*"]:
        rows = rows.select(*declared, *(_FILE_POSITION if ordered else ()))
    if ordered:
        names = [*names, PATH, BLOCK]
    if spec.format not in MARKS_CORRUPT:
        return rows
    # All columns have to be read to find corrupt records: of fewer columns Spark considers fewer records corrupt.
    nulls = ", ".join(f"int({quoted(name)} IS NULL)" for name in names if name != CORRUPT)
    # It is always true, which Spark's optimizer does not know.
    corrupt = f"if(greatest(0, 0, {nulls}) >= 0, {CORRUPT}, NULL) AS {CORRUPT}"
    return rows.select(*(corrupt if name == CORRUPT else quoted(name) for name in names))


def _is_plain(spec: ElementsSpec | FilesSpec, paths: Sequence[str]) -> bool:
    """Whether Spark's reader makes nothing of a source's files but rows of their columns: no partitions, no types of tables only."""
    return "char" not in (spec.schema or "").lower() and not any("=" in path for path in paths)


def rows_of_epoch(
    spark: SparkSession,
    sources: Sequence[SourceNode],
    taken: EpochInput,
    *,
    ordered: Collection[str],
    few_tasks: bool,
    batch: DataFrame | None = None,
) -> dict[str, SourceRows]:
    """Return the rows of the sources that have any in an epoch, each read the cheapest way.

    Args:
        spark: session of the epoch.
        sources: of the job.
        taken: the epoch's input.
        ordered: names of those whose rows need a position.
        few_tasks: whether to read few rows in one task.
        batch: of a query, with the rows of sources that are no files; None where all are.
    """
    frames = unpack(batch, [source.name for source in sources]) if batch is not None else {}
    found = {}
    for source in sources:
        if not taken.has_new_data(source.name):
            continue
        require_same_topics(source, *taken.moved(source.name))
        if reads_files(source):
            found[source.name] = _rows_of_files(spark, source, taken, ordered=source.name in ordered, few_tasks=few_tasks)
        elif source.name in taken.reads:
            read = partial(_rows_read, source, taken, few_tasks=few_tasks)
            found[source.name] = SourceRows(read, few=taken.has_few_rows(source.name), splits=_splits_read(source, taken))
        elif source.name in frames:
            read = partial(decoded, frames[source.name], source, *taken.moved(source.name))
            found[source.name] = SourceRows(read, splits=_splits_read(source, taken))
    return found


def _splits_read(source: SourceNode, taken: EpochInput) -> tuple[str, ...]:
    """Return the partitions of Kafka that an epoch reads; nothing for other formats."""
    spec = source.spec
    return moved_splits(*taken.moved(source.name)) if isinstance(spec, FormatSpec) and spec.format.lower() == KAFKA else ()


def _rows_read(source: SourceNode, taken: EpochInput, *, few_tasks: bool) -> DataFrame:
    rows = decoded(_with_origin(source.spec, taken.reads[source.name]()), source, *taken.moved(source.name))
    return in_one_task(rows) if few_tasks and taken.has_few_rows(source.name) else rows


def _rows_of_files(spark: SparkSession, source: SourceNode, taken: EpochInput, *, ordered: bool, few_tasks: bool) -> SourceRows:
    paths, small = taken.files[source.name], taken.has_few_bytes(source.name)
    few = few_tasks and small
    require_types_of_files(spark, source, paths)

    def read() -> DataFrame:
        rows = read_files_of_epoch(spark, source, paths, ordered=ordered)
        return (rows.in_one_task() if few else rows).frame()

    few_of_files = _few_of_files(source.spec)
    by_one_scan = not isinstance(source.spec, FilesSpec) or len(files_by_columns(source.spec, paths)) == 1
    if few_of_files is None or not by_one_scan:
        return SourceRows(read, may_have_split=False)
    files = tuple(paths)
    return SourceRows(read, files if few else (), may_have_split=False, few_of_files=few_of_files, scanned=files, small=small)


def _few_of_files(spec: SourceSpec) -> Callable[[Iterable[str]], bool] | None:
    """Return what says whether files of a source have few rows; None where that is not known."""
    if not isinstance(spec, FilesSpec):
        return has_few_rows if isinstance(spec, ElementsSpec) else None
    if any(option.lower() == "linesep" for option in spec.options):
        return None
    return {"parquet": has_few_rows, "text": has_few_lines, "csv": has_few_lines, "json": has_few_records}.get(spec.format)


def _no_stream(reader: DataStreamReader, schema: StructType) -> DataFrame:
    """Return a stream of which only the columns are of use: its source is read without a query."""
    nothing = reader.format("rate").load().where("false")
    return nothing.select(*(F.lit(None).cast(field.dataType).alias(field.name) for field in schema))


def pack(frames: Mapping[str, DataFrame]) -> DataFrame:
    """Return several sources as one DataFrame: a name, and one struct per source, null in the rows of the others."""
    if len(frames) == 1:
        return next(iter(frames.values()))
    packed = [
        frame.select(F.lit(name).alias(SOURCE), F.struct(*map(quoted, frame.columns)).alias(f"__tm_in_{name}"))
        for name, frame in frames.items()
    ]
    return reduce(lambda left, right: left.unionByName(right, allowMissingColumns=True), packed)


def unpack(batch: DataFrame, names: Sequence[str]) -> dict[str, DataFrame]:
    """Return the rows of each source in a batch that ``pack`` made."""
    if len(names) == 1:
        return {names[0]: batch}
    return {name: batch.where(F.col(SOURCE) == name).select(f"__tm_in_{name}.*") for name in names}


def _columns_and_options(spec: FilesSpec) -> tuple[StructType, dict[str, str]]:
    schema, options = struct_of(spec.schema), dict(spec.options)
    if spec.format in MARKS_CORRUPT:
        schema = schema.add(CORRUPT, "string")
        options |= {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": CORRUPT}
    return schema, options


def _files(reader: DataStreamReader, node: SourceNode, spec: FilesSpec, path: str, *, ordered: bool) -> DataFrame:
    schema, options = _columns_and_options(spec)
    if spec.max_files_per_epoch is not None:
        options["maxFilesPerTrigger"] = str(spec.max_files_per_epoch)
    else:
        options["maxBytesPerTrigger"] = str(spec.max_bytes_per_epoch or DEFAULT_BYTES_PER_EPOCH)
    options.setdefault("maxFileAge", _NEVER_TOO_OLD)
    require_folder(node, spec.path)
    frame = reader.format(spec.format).schema(schema).options(**options).load(path)
    return frame.selectExpr("*", *_FILE_POSITION) if ordered else frame


def escaped(path: str) -> str:
    """Return a path escaped, so that Hadoop does not read it as a pattern."""
    return "".join(f"\\{character}" if character in PATTERN_CHARACTERS else character for character in path)


def _format(reader: DataStreamReader, spec: FormatSpec) -> DataFrame:
    reader = reader.format(spec.format).options(**dict(spec.options))
    # Of a column that may not be null Spark takes a null for a value, and fails; the intake looks for nulls itself.
    schema = nullable(struct_of(spec.schema)) if spec.schema and may_forbid_nulls(spec.schema) else spec.schema
    return _with_origin(spec, (reader.schema(schema) if schema else reader).load())


def _with_origin(spec: SourceSpec, frame: DataFrame) -> DataFrame:
    """Return rows with the engine's columns of where they come from, for formats where that is known."""
    if not isinstance(spec, FormatSpec) or spec.format.lower() != KAFKA:
        return frame
    split = F.concat_ws("-", F.col("topic"), F.col("partition"))
    return frame.withColumns({SPLIT: split, PATH: F.col("topic"), BLOCK: F.col("partition"), ROW: F.col("offset")})


def _stored(node: SourceNode, spec: ElementsSpec, store: JobStore, read: int) -> tuple[str, StructType]:
    """Store a source's elements; return their folder and their columns."""
    schema = _element_columns(spec)
    return store_elements(node, spec, schema, store=store, read=read), schema


def _element_columns(spec: ElementsSpec) -> StructType:
    return struct_of(spec.schema).add(StructField(ROW, LongType()))
