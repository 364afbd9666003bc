"""Retries of a job's runs: only transient errors are retried."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import dagster as dg

from tidemark.errors import TidemarkError


def retry_transient_errors(function: Callable[..., object]) -> Callable[..., object]:
    """Return an asset's body whose permanent errors Dagster does not retry, such as an invalid definition, bad rows or a table mismatch.

    Errors that are not Tidemark's are retried by Dagster as usual.
    """

    @functools.wraps(function)
    def returning(*args: object, **kwargs: object) -> object:
        with _without_retries():
            return function(*args, **kwargs)

    @functools.wraps(function)
    def yielding(*args: object, **kwargs: object) -> Iterator[object]:
        with _without_retries():
            yield from function(*args, **kwargs)  # type: ignore[misc]  # a generator function's

    # Dagster distinguishes generator functions.
    return yielding if inspect.isgeneratorfunction(function) else returning


@contextmanager
def _without_retries() -> Iterator[None]:
    try:
        yield
    except TidemarkError as error:
        if error.transient:
            raise
        raise dg.Failure(str(error), allow_retries=False) from error
