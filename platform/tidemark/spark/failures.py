"""From Spark's errors to Tidemark's: whose fault it is, and whether trying again can help."""

from __future__ import annotations

from pyspark.errors import PySparkException, PythonException

from tidemark.errors import EngineError, SourceError, TidemarkError, UserCodeError
from tidemark.spark.sources import first_line

_DATA_CONDITIONS = (
    "ARITHMETIC_OVERFLOW",
    "BINARY_ARITHMETIC_OVERFLOW",
    "CANNOT_PARSE_TIMESTAMP",
    "CAST_INVALID_INPUT",
    "CAST_OVERFLOW",
    "DATATYPE_MISMATCH",
    "DATETIME_OVERFLOW",
    "DIVIDE_BY_ZERO",
    "ELEMENT_AT_BY_INDEX_ZERO",
    "INTERVAL_",
    "INVALID_ARRAY_INDEX",
    "INVALID_PARAMETER_VALUE",
    "NULL_MAP_KEY",
    "NUMERIC_VALUE_OUT_OF_RANGE",
    "REMAINDER_BY_ZERO",
    "UNRESOLVED_COLUMN",
    "UNRESOLVED_ROUTINE",
    "USER_RAISED_EXCEPTION",
)
_FILE_CONDITIONS = ("FAILED_READ_FILE", "CANNOT_READ_FILE", "PATH_NOT_FOUND")


def translate(error: BaseException, *, job: str, epoch: int | None) -> TidemarkError:
    """Return the error to raise for one that ended an epoch; nothing of that epoch was committed."""
    if isinstance(error, TidemarkError):
        found = error.with_job(job)
        found.epoch = epoch if found.epoch is None else found.epoch
        found.args = (str(found),)
        return found
    text = first_line(error)
    if isinstance(error, PythonException):
        return UserCodeError(
            f"a Python function failed: {_last_python_line(str(error))}",
            fix="mend the function, or let it return a row that a filter with rejects_to sets aside; the epoch is read again",
            job=job,
            epoch=epoch,
        )
    condition = (error.getCondition() or "") if isinstance(error, PySparkException) else ""
    if condition.startswith(_DATA_CONDITIONS):
        return UserCodeError(
            f"an expression failed on the data: {text}",
            fix="use the try_ form of the function (try_cast, try_divide, …), or filter such rows first with rejects_to",
            job=job,
            epoch=epoch,
        )
    if condition.startswith(_FILE_CONDITIONS):
        return SourceError(
            f"a file cannot be read: {text}",
            fix="restore the file or remove it from the source's folder; the epoch is read again",
            job=job,
            epoch=epoch,
        )
    return EngineError(
        f"the epoch failed: {type(error).__name__}: {text}",
        fix="see the cause below; nothing was committed, so the job can be started again",
        job=job,
        epoch=epoch,
    )


def _last_python_line(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip() and not line.startswith(("\tat ", "  "))]
    errors = [line for line in lines if ": " in line and line.split(":")[0].rpartition(".")[2].endswith(("Error", "Exception"))]
    return errors[-1] if errors else first_line(Exception(text))
