"""Options and helpers that the commands share: the store, the requester, JSON, the exit code of an unhealthy job."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Final, TypeVar

import click

from tidemark.durations import to_ms
from tidemark.errors import DefinitionError, TidemarkError
from tidemark.state.encoding.codec import to_jsonable
from tidemark.state.store.root_store import DEFAULT_STORE, STORE_VARIABLE, root_store
from tidemark.state.store.store import JobStore

UNHEALTHY_EXIT: Final = 3
"""Exit code for an unhealthy job: of ``status --check``, and of waiting for a job that failed."""


F = TypeVar("F", bound=Callable[..., object])

store_option = click.option(
    "--store", default=None, help=f"Root of the job store.  [default: that of the job's code, else ${STORE_VARIABLE}, else {DEFAULT_STORE}]"
)
json_option = click.option("--json", "as_json", is_flag=True, help="One JSON document per line, for scripts.")


missing_epochs_option = click.option(
    "--missing-epochs",
    type=click.Choice(["republish", "accept"]),
    default=None,
    help="If an output no longer holds epochs that were published: publish them again, or continue without them.  [default: fail]",
)


class DurationType(click.ParamType[int]):
    """A duration such as ``10 seconds``, as milliseconds."""

    name = "duration"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """Return the milliseconds; fails as click does."""
        if isinstance(value, int):
            return value
        try:
            return to_ms(str(value), what=param.name or "duration" if param is not None else "duration")
        except TidemarkError as error:
            self.fail(str(error), param, ctx)


DURATION: Final = DurationType()


def request_options(command: F) -> F:
    """Add ``--by`` and ``--why``: who requests a change, and the reason."""
    command = click.option("--why", default="", help="Reason; stored with the change.")(command)
    return click.option("--by", default="", help="Who requests it.  [default: user@host]")(command)


def pair(option: str, text: str, form: str = "KEY=VALUE", *, empty: bool = True) -> tuple[str, str]:
    """Return the text before and after the first ``=`` of an option's value.

    Args:
        option: the option's name, for the error.
        text: its value.
        form: the expected form, for the error.
        empty: whether the text after the ``=`` may be empty.

    Raises:
        DefinitionError: it is not of that form.
    """
    first, sign, second = text.partition("=")
    if not (first and sign and (second or empty)):
        raise DefinitionError(f"{option} {text!r} is not {form}", fix=f"write {option} {form}")
    return first, second


def absolute_path(path: str) -> str:
    """Return a local path as an absolute one, valid for any process that starts the driver; a URI is returned unchanged."""
    return path if "://" in path else str(Path(path).expanduser().resolve())


def pairs(option: str, texts: Iterable[str], form: str = "KEY=VALUE", *, empty: bool = True) -> dict[str, str]:
    """Return the pairs of a repeatable option by key; the last of two for the same key wins."""
    return dict(pair(option, text, form, empty=empty) for text in texts)


def open_store(store: str | None) -> JobStore:
    """Open the root store.

    Raises:
        StoreError: it cannot be reached.
    """
    return root_store(store)


def existing_store(store: str | None) -> JobStore:
    """Open the root store for a command on existing jobs, without creating it: a mistyped location is an error.

    Raises:
        UnknownStoreError: there is none.
        StoreError: it cannot be reached.
    """
    return root_store(store, make=False)


def echo_json(value: object) -> None:
    """Print a value as one line of JSON."""
    click.echo(json.dumps(to_jsonable(value)))
