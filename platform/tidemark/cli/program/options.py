"""What the commands share: the store, who asks, JSON, and how errors become exit codes."""

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
"""Exit code for a job that is not well: ``status --check``, and waiting for one that failed."""


F = TypeVar("F", bound=Callable[..., object])

store_option = click.option(
    "--store", default=None, help=f"Root of the job store.  [default: that of a job's code, else ${STORE_VARIABLE}, else {DEFAULT_STORE}]"
)
json_option = click.option("--json", "as_json", is_flag=True, help="One JSON document per line, for scripts.")


missing_epochs_option = click.option(
    "--missing-epochs",
    type=click.Choice(["republish", "accept"]),
    default=None,
    help="Where an output's place no longer holds what was published: publish that again, or continue without it.  [default: refuse]",
)


class DurationType(click.ParamType[int]):
    """A duration such as ``10 seconds``, as milliseconds."""

    name = "duration"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """Return the milliseconds; refuses as click does."""
        if isinstance(value, int):
            return value
        try:
            return to_ms(str(value), what=param.name or "duration" if param is not None else "duration")
        except TidemarkError as error:
            self.fail(str(error), param, ctx)


DURATION: Final = DurationType()


def request_options(command: F) -> F:
    """Add who asks and what for."""
    command = click.option("--why", default="", help="What for; kept with the change.")(command)
    return click.option("--by", default="", help="Who asks.  [default: user@host]")(command)


def pair(option: str, text: str, form: str = "KEY=VALUE", *, empty: bool = True) -> tuple[str, str]:
    """Return what stands before and after the first ``=`` of an option's text.

    Args:
        option: as it was given, for the error.
        text: what was given with it.
        form: how it is to be written.
        empty: whether nothing may stand after the ``=``.

    Raises:
        DefinitionError: it is not of that form.
    """
    first, sign, second = text.partition("=")
    if not (first and sign and (second or empty)):
        raise DefinitionError(f"{option} {text!r} is not {form}", fix=f"write {option} {form}")
    return first, second


def absolute_path(path: str) -> str:
    """Return a local path as one that means the same to the process that starts the driver; an address stays as it is."""
    return path if "://" in path else str(Path(path).expanduser().resolve())


def pairs(option: str, texts: Iterable[str], form: str = "KEY=VALUE", *, empty: bool = True) -> dict[str, str]:
    """Return the same of an option that may be repeated; of two for the same key the last one counts."""
    return dict(pair(option, text, form, empty=empty) for text in texts)


def open_store(store: str | None) -> JobStore:
    """Open the root store.

    Raises:
        StoreError: it cannot be reached.
    """
    return root_store(store)


def existing_store(store: str | None) -> JobStore:
    """Open the root store for a command on jobs that are there: of a mistyped place nothing is made.

    Raises:
        UnknownStoreError: there is none.
        StoreError: it cannot be reached.
    """
    return root_store(store, make=False)


def views(root: JobStore, job: str | None = None, observer: Observer | None = None) -> list[tuple[Observation, JobView]]:
    """Return what is known of a job, or of all jobs of the store; one of which a file cannot be read is ``damaged``, and hides no other.

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
    """Refuse a name that no job of a store has.

    Raises:
        UnknownJobError: there is no such job.
    """
    views(root, job)


def unknown_job(name: str, root: JobStore) -> UnknownJobError:
    """Return the error that there is no such job; it names those there are."""
    known = ", ".join(view.job for _, view in views(root)) or "none"
    return UnknownJobError(
        f"there is no job {name!r} in {root.uri}", fix=f"name one of those there are ({known}), or give --store", job=name
    )


def echo_json(value: object) -> None:
    """Print a value as one line of JSON."""
    click.echo(json.dumps(to_jsonable(value)))


def _has_log(root: JobStore, job: str) -> bool:
    return LOG in root.at(job_folder(job)).folders()
