"""What a process function prints and logs: each line begins with the job, the operator and the key, and is found in the driver's log."""

from __future__ import annotations

import io
import sys
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from typing import TextIO

from tidemark.semantics.keyed_process.context import ProcessContext


@contextmanager
def named_output(origin: str, context: ProcessContext) -> Iterator[None]:
    """Have lines that are printed while the context lasts begin with their origin and the key.

    Args:
        origin: the job and the uid.
        context: of the function, which knows the key.
    """
    out, errors = (_NamedLines(to, origin, context) for to in (sys.stdout, sys.stderr))
    with redirect_stdout(out), redirect_stderr(errors):
        try:
            yield
        finally:
            out.end()
            errors.end()


class _NamedLines(io.TextIOBase):
    def __init__(self, to: TextIO, origin: str, context: ProcessContext) -> None:
        self._to = to
        self._origin = origin
        self._context = context
        self._line = ""

    def writable(self) -> bool:
        return True

    def write(self, text: str) -> int:
        *lines, self._line = (self._line + text).split("\n")
        if lines:
            key = f" {dict(self._context.current_key)}" if self._context.has_key else ""
            self._to.write("".join(f"{self._origin}{key}: {line}\n" for line in lines))
        return len(text)

    def flush(self) -> None:
        self._to.flush()

    def end(self) -> None:
        """Write a line that was not ended."""
        if self._line:
            self.write("\n")
        self.flush()
