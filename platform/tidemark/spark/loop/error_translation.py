"""Translates Spark's errors into Tidemark's: what caused them, and whether a retry can help."""

from __future__ import annotations

import re
from collections.abc import Sequence
from urllib.parse import unquote

from pyspark.errors import AnalysisException, PySparkException, PythonException

from tidemark.errors import CorruptStoreError, EngineError, SourceError, TidemarkError, UserCodeError
from tidemark.graph.model.nodes import Node, SourceNode
from tidemark.graph.model.source_specs import DeltaTableSpec, FilesSpec
from tidemark.graph.operators.keys import NO_MAP_KEYS
from tidemark.locations import absolute_path
from tidemark.spark.columns.engine_causes import engine_cause, root_cause, whole_text
from tidemark.spark.columns.error_text import first_line, message_text
from tidemark.spark.columns.origins import AS_CHANGELOG, USER_RAISED, Origin, origin_of_expression, origin_of_function
from tidemark.spark.loop.zone_errors import zone_error
from tidemark.spark.sources.kafka_errors import kafka_error
from tidemark.state.encoding.redaction import redacted

_EXPRESSION_CONDITIONS = (
    "DATATYPE_MISMATCH",
    "PARSE_",
    "UNRESOLVED_",
    "WRONG_NUM_ARGS",
)
"""The expression is wrong whatever the data."""

_DATA_CONDITIONS = (
    "ARITHMETIC_OVERFLOW",
    "BINARY_ARITHMETIC_OVERFLOW",
    "CANNOT_PARSE_TIMESTAMP",
    "CAST_INVALID_INPUT",
    "CAST_OVERFLOW",
    "DATETIME_OVERFLOW",
    "DIVIDE_BY_ZERO",
    "ELEMENT_AT_BY_INDEX_ZERO",
    "INTERVAL_",
    "INVALID_ARRAY_INDEX",
    "INVALID_PARAMETER_VALUE",
    "NULL_MAP_KEY",
    "NUMERIC_VALUE_OUT_OF_RANGE",
    "REMAINDER_BY_ZERO",
)
_FILE_CONDITIONS = ("FAILED_READ_FILE", "CANNOT_READ_FILE", "PATH_NOT_FOUND")
_OTHER_TYPE = "DATA_TYPE_MISMATCH"
_TYPE_FIX = (
    "give the column in schema= the type that it has in the files (INT64 is BIGINT, BINARY is STRING), and cast it in a later step. Times "
    "in nanoseconds, as pandas writes them, are INT64, too, and have no type in Spark: write microseconds (coerce_timestamps='us')"
)
_OTHER_HEADER = re.compile("CSV header (does not conform|is not equal)")
_HEADER_FIX = (
    "give the columns in schema= the names of the header, in its order; without the option enforceSchema, columns are taken by their "
    "places alone, whatever the header says"
)
_CONDITION = re.compile(r"\[([A-Z][A-Z0-9_]*)[A-Z0-9_.]*\]")

_RAISED = re.compile(r"[A-Za-z_][\w.]*: .+")
_OWN = re.compile(
    r"tidemark\.errors\.\w+: \[\w+\] (?P<what>.*?)(?: \((?:'(?P<uid>[^'()]+)')?(?:, )?(?:at (?P<place>[^()]+:\d+))?\))?\. Fix: (?P<fix>.*)"
)
"""An error that Tidemark raised in a task, with its operator and line."""


def translate(error: BaseException, *, job: str, epoch: int | None, state: str, nodes: Sequence[Node] = ()) -> TidemarkError:
    """Return the error to raise for one that ended an epoch; nothing of that epoch was committed.

    Args:
        error: the error that ended it.
        job: the job's name.
        epoch: the current epoch.
        state: path of the job's state files, which distinguishes an unreadable state file from a source's file.
        nodes: the job's operators, one of which may be the origin.
    """
    error = kafka_error(error, [node for node in nodes if isinstance(node, SourceNode)]) or zone_error(error, nodes) or error
    if isinstance(error, TidemarkError):
        found = error.with_job(job)
        found.epoch = epoch if found.epoch is None else found.epoch
        found.args = (str(found),)
        return found
    kind, what, fix = _explained(error, state)
    if kind is EngineError and isinstance(error, AnalysisException) and origin_of_expression(_located_text(error), nodes).place:
        kind, what, fix = _refused(error, first_line(error))
    origin = _origin(error, kind, nodes)
    about = f", in {origin.what}" if origin.what else ""
    return kind(f"{what}{about}", fix=fix, job=job, uid=origin.uid, epoch=epoch, place=origin.place)


def _origin(error: BaseException, kind: type[TidemarkError], nodes: Sequence[Node]) -> Origin:
    """Return the operator and line that an error of the user's code comes from, or the source of a file; empty for other errors."""
    if kind is SourceError:
        return _source_of_file(first_line(error), nodes)
    if kind is not UserCodeError:
        return Origin()
    if isinstance(error, PythonException):
        own = _OWN.fullmatch(_last_raised(str(error)))
        if own is not None and (own["uid"] or own["place"]):
            declared = (node.place for node in nodes if own["uid"] and getattr(node, "uid", None) == own["uid"])
            return Origin("", own["uid"], own["place"] or next(declared, None))
        return origin_of_function(str(error), nodes)
    return origin_of_expression(_located_text(error), nodes)


def _source_of_file(text: str, nodes: Sequence[Node]) -> Origin:
    """Return the source in whose folder the file lies that an error names, if it is one source."""
    sources = [node for node in nodes if isinstance(node, SourceNode) and isinstance(node.spec, FilesSpec | DeltaTableSpec)]
    found = [source for source in sources if f"{_folder_of(source)}/" in unquote(text)]
    return Origin("", found[0].name, found[0].place) if len(found) == 1 else Origin()


def _folder_of(source: SourceNode) -> str:
    """Return a source's folder without the scheme, which Spark may write in another way; of a pattern what is in front of it."""
    path = str(getattr(source.spec, "path", ""))
    folder = path.partition("://")[2] or absolute_path(path.removeprefix("file:"))
    return re.split(r"/[^/]*[*?\[\]{}]", folder)[0].rstrip("/")


def _located_text(error: BaseException) -> str:
    """Return an error's text with its SQL, which Spark keeps apart where it has refused it."""
    contexts = error.getQueryContext() if isinstance(error, AnalysisException) else []
    return "\n".join([message_text(error), *(context.summary() for context in contexts)])


def _explained(error: BaseException, state: str) -> tuple[type[TidemarkError], str, str]:
    """Return the class, the message and the fix for an error of Spark's or of the user's code in it."""
    text = first_line(error)
    if isinstance(error, PythonException):
        what, fix = _explained_python(redacted(str(error)))
        return UserCodeError, f"a Python function failed: {what}", fix
    condition = _condition(error, text)
    if condition.startswith(_EXPRESSION_CONDITIONS):
        return _refused(error, text)
    if condition == USER_RAISED:
        return _explained_raised(text)
    if condition == "INVALID_TIMEZONE":
        fix = "correct the data, or set such rows aside before: .filter(..., rejects_to=tm.OutputTag('no_zone'))"
        return UserCodeError, f"a row has no time zone that Spark knows: {text}", fix
    if condition.startswith(_DATA_CONDITIONS):
        fix = "use the try_ form of the function (try_cast, try_to_timestamp, try_divide, …), or filter such rows first with rejects_to"
        if condition.startswith("ARITHMETIC_OVERFLOW"):
            fix += "; sums beyond a BIGINT are tm.sum('CAST(amount AS DECIMAL(38))')"
        return UserCodeError, f"an expression failed on the data: {text}", fix
    if condition.startswith(_FILE_CONDITIONS):
        return _explained_file(error, text, state)
    return _explained_engine(error, text)


def _explained_file(error: BaseException, text: str, state: str) -> tuple[type[TidemarkError], str, str]:
    """Return the same for a file that cannot be read: of the job's state, or of a source."""
    if state in text:
        fix = (
            "restore the file from a backup of the job store, or give the job another name and its outputs other paths, "
            "which reads all input again"
        )
        return CorruptStoreError, f"a file of the job's state is missing or damaged: {text}", fix
    if _OTHER_TYPE in text:
        return SourceError, f"a file cannot be read with the schema: {text}", _TYPE_FIX
    if _OTHER_HEADER.search(whole_text(error)):
        return SourceError, f"a file has another header than the schema: {text}", _HEADER_FIX
    fix = "restore the file or remove it from the source's folder; the epoch is read again"
    # Java's own names of errors say nothing to users.
    behind = re.sub(r"\bjava\.[\w.]+: ", "", _behind(error, text))
    return SourceError, f"a file cannot be read: {text}{behind}", fix


def _explained_raised(text: str) -> tuple[type[TidemarkError], str, str]:
    """Return the same for an error that an expression raised on purpose: the user's, or the engine's for an operation that is none."""
    if AS_CHANGELOG in text:
        fix = (
            "let operation= be one of these for each row, such as operation=\"CASE op WHEN 'c' THEN 'insert' WHEN 'd' THEN 'delete' END\", "
            "or set other rows aside before: .filter(..., rejects_to=tm.OutputTag('odd'))"
        )
        return UserCodeError, f"a row has an operation that is none: {text}", fix
    fix = "correct the data or the condition, or set such rows aside before: .filter(..., rejects_to=tm.OutputTag('odd'))"
    return UserCodeError, f"an expression raised: {text}", fix


def _refused(error: BaseException, text: str) -> tuple[type[TidemarkError], str, str]:
    if _condition(error, text) == "DATATYPE_MISMATCH.HASH_MAP_TYPE":
        return UserCodeError, "a key is a MAP, or contains one, and a MAP cannot be a key", NO_MAP_KEYS
    return UserCodeError, f"Spark refuses an expression: {text}", "correct the expression; the epoch is read again"


def _explained_engine(error: BaseException, text: str) -> tuple[type[TidemarkError], str, str]:
    """Return the cause of an error that is about no expression, data or file, as far as its text says."""
    whole = whole_text(error)
    cause = engine_cause(whole)
    if cause is not None:
        return EngineError, f"the epoch failed: {cause.what}: {text}", f"{cause.fix}; nothing was committed, so then start the job again"
    return (
        EngineError,
        f"the epoch failed: {type(error).__name__}: {text}{_behind(error, text)}",
        "see the cause below; nothing was committed, so the job can be started again",
    )


def _behind(error: BaseException, text: str) -> str:
    """Return the cause of an error in brackets, where its text does not have it."""
    root = root_cause(whole_text(error))
    return f" ({root})" if root and root not in text else ""


def _condition(error: BaseException, text: str) -> str:
    """Return Spark's error condition; Java exceptions that PySpark does not know have it in their text only."""
    if isinstance(error, PySparkException):
        return error.getCondition() or ""
    found = _CONDITION.match(text)
    return found[1] if found else ""


def _explained_python(text: str) -> tuple[str, str]:
    """Return what failed in a Python task and its fix, from the traceback in Spark's error."""
    last = _last_raised(text)
    if own := _OWN.fullmatch(last):
        return own["what"], own["fix"]
    return last, "correct the function, or let it return a row that a filter with rejects_to sets aside; the epoch is read again"


def _last_raised(text: str) -> str:
    """Return the exception that a traceback ends with."""
    raised = [line for line in text.splitlines() if _RAISED.match(line)]
    return raised[-1] if raised else first_line(Exception(text))
