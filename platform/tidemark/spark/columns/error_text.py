"""What other libraries' errors say, in one line."""

from __future__ import annotations

from py4j.protocol import Py4JJavaError

from tidemark.state.encoding.redaction import redacted


def message_text(error: BaseException) -> str:
    """Return an error's whole text, which may hold anything that the user's data or settings do: to be searched, not shown."""
    # PySpark wraps the Java exceptions it knows; of another one the text begins with the call that failed, not with what went wrong.
    return str(error.java_exception.getMessage()) if isinstance(error, Py4JJavaError) else str(error)


def first_line(error: BaseException) -> str:
    """Return the first line of an error's text, without credentials; Spark's go on with plans and traces."""
    return redacted((message_text(error).strip().splitlines() or [type(error).__name__])[0])
