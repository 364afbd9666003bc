"""The texts of other libraries' errors, in one line."""

from __future__ import annotations

from py4j.protocol import Py4JJavaError

from tidemark.state.encoding.redaction import redacted


def message_text(error: BaseException) -> str:
    """Return an error's whole text, which may contain the user's data or settings: for searching, not for showing."""
    # PySpark wraps the Java exceptions that it knows; the text of others begins with the failed call, not with the cause.
    return str(error.java_exception.getMessage()) if isinstance(error, Py4JJavaError) else str(error)


def first_line(error: BaseException) -> str:
    """Return the first line of an error's text, without credentials; Spark's texts continue with plans and traces."""
    return redacted((message_text(error).strip().splitlines() or [type(error).__name__])[0])
