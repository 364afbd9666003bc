"""Retries of a job's runs: only what another try may mend is tried again."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import dagster as dg

from tidemark.errors import TidemarkError


def retry_transient_errors(function: Callable[..., object]) -> Callable[..., object]:
    """Return an asset's body of which Dagster retries no errors that would come again: a wrong definition, rows or a table that do not fit.

    Errors of others than Tidemark are retried as Dagster does it.
    """

    @functools.wraps(function)
    def returning(*args: object, **kwargs: object) -> object:
        with _without_retries():
            return function(*args, **kwargs)

    @functools.wraps(function)
    def yielding(*args: object, **kwargs: object) -> Iterator[object]:
        with _without_retries():
            yield from function(*args, **kwargs)  # type: ignore[misc]  # a generator function's

    # Dagster looks at what kind of function it is.
    return yielding if inspect.isgeneratorfunction(function) else returning


@contextmanager
def _without_retries() -> Iterator[None]:
    try:
        yield
    except TidemarkError as error:
        if error.transient:
            raise
        raise dg.Failure(str(error), allow_retries=False) from error
