"""Options and helpers that the commands share: the store, the requester, JSON, the exit code of an unhealthy job."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Final, TypeVar

import click

from tidemark.clock import SYSTEM_CLOCK
from tidemark.control.launch.launchers import launchers_here
from tidemark.control.model.view import JobView
from tidemark.control.observed.observe import Observation, Observer, job_names
from tidemark.control.view.view_builder import damaged_view, view_of
from tidemark.durations import to_ms
from tidemark.errors import CorruptStoreError, DefinitionError, FormatError, TidemarkError, UnknownJobError
from tidemark.names import validate_name
from tidemark.state.encoding.codec import to_jsonable
from tidemark.state.store.layout import LOG, job_folder
from tidemark.state.store.root_store import DEFAULT_STORE, STORE_VARIABLE, is_default, root_store
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


def views(root: JobStore, job: str | None = None, observer: Observer | None = None) -> list[tuple[Observation, JobView]]:
    """Return observation and view of a job, or of all jobs of the store; a job with an unreadable file is ``damaged`` and hides no other.

    Raises:
        UnknownJobError: there is no such job.
    """
    look = observer or Observer(root, launchers_here())
    names = (validate_name("job", job),) if job else job_names(root)
    named = None if is_default(root) else root.uri
    found: list[tuple[Observation, JobView]] = []
    for name in names:
        try:
            seen = look.observe(name)
        except (CorruptStoreError, FormatError) as error:
            found.append((Observation(name), damaged_view(name, error.with_job(name), SYSTEM_CLOCK.now_ms())))
            continue
        if seen.generation is not None or seen.driver is not None or seen.damage is not None or _has_log(root, name):
            found.append((seen, view_of(seen, SYSTEM_CLOCK.now_ms(), store=named)))
    if job and not found:
        raise unknown_job(job, root)
    return found


def require_known(root: JobStore, job: str) -> None:
    """Raise unless the store has a job of that name.

    Raises:
        UnknownJobError: there is no such job.
    """
    views(root, job)


def unknown_job(name: str, root: JobStore) -> UnknownJobError:
    """Return the error for an unknown job; it names the known ones."""
    known = ", ".join(view.job for _, view in views(root)) or "none"
    return UnknownJobError(f"there is no job {name!r} in {root.uri}", fix=f"name an existing job ({known}), or pass --store", job=name)


def echo_json(value: object) -> None:
    """Print a value as one line of JSON."""
    click.echo(json.dumps(to_jsonable(value)))


def _has_log(root: JobStore, job: str) -> bool:
    return LOG in root.at(job_folder(job)).folders()
