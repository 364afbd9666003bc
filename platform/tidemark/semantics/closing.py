"""Closes a user's function at the end of a task, also of one that failed."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from tidemark.errors import TidemarkError
from tidemark.semantics.user_rows import describe_failure

_log = logging.getLogger("tidemark")


@contextmanager
def closing(close: Callable[[], object]) -> Iterator[None]:
    """Call ``close`` at the end. Where something failed before, that is the error to show, and one of ``close`` is only logged.

    >>> with closing(lambda: print("closed")):
    ...     print("opened")
    opened
    closed
    """
    try:
        yield
    except BaseException:
        try:
            close()
        except Exception as error:  # noqa: BLE001  # whatever the user's function raises
            shown = error if isinstance(error, TidemarkError) else describe_failure(error)
            _log.warning("close failed as well, after the error that ends the task: %s", shown)
        raise
    close()
