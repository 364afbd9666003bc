"""``tidemark upgrade`` and ``tidemark promote``: new code for a submitted job, with rollback."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypedDict, TypeVar, Unpack

import click

from tidemark.cli.jobs.next_command import next_command
from tidemark.cli.jobs.rename_options import map_options, maps_of
from tidemark.cli.program.documented_command import DocumentedCommand
from tidemark.cli.program.options import (
    DURATION,
    UNHEALTHY_EXIT,
    absolute_path,
    echo_json,
    existing_store,
    json_option,
    pairs,
    request_options,
    store_option,
)
from tidemark.clock import format_ms
from tidemark.control.desired.job_import import job_code
from tidemark.control.desired.spec_store import current_user, read_spec
from tidemark.control.forks.promoting import promotion_of
from tidemark.control.launch.launchers import launchers_here
from tidemark.control.model.spec import JobSpec
from tidemark.control.model.upgrade_blocker import read_blocker
from tidemark.control.model.upgrade_records import UpgradeStep
from tidemark.control.upgrade.code_check import Maps, judge_code
from tidemark.control.upgrade.upgrade_coordinator import Upgrading
from tidemark.control.upgrade.upgrade_request import UpgradeRequest, begin_upgrade
from tidemark.errors import DefinitionError
from tidemark.savepoints.compatibility.checking import HEAD
from tidemark.savepoints.core.savepoint_store import SavepointStore
from tidemark.state.store.store import JobStore

F = TypeVar("F", bound=Callable[..., object])


class Given(TypedDict):
    """The arguments and options of ``upgrade`` by name."""

    job: str
    store: str | None
    code: str | None
    code_by_its_old_name: str | None
    back_to: str | None
    version: str
    code_paths: tuple[str, ...]
    folder: str | None
    variables: tuple[str, ...]
    uids: tuple[str, ...]
    columns: tuple[str, ...]
    allow: bool
    good_epochs: int
    within: int
    checks: tuple[str, ...]
    abort: bool
    accept: bool
    wait: bool
    timeout: int
    by: str
    why: str
    as_json: bool


def _probation(command: F) -> F:
    """Add the options of the new code's probation, and how long to wait."""
    for add in (
        json_option,
        request_options,
        click.option("--timeout", type=DURATION, default="30 minutes", show_default=True, help="How long to wait; can be continued."),
        click.option("--wait/--no-wait", default=True, show_default=True, help="Carry it out; else only begin it: a supervisor continues."),
        click.option("--check", "checks", multiple=True, metavar="NAME", help="A check that must pass in time; may be repeated."),
        click.option("--checks-within", "within", type=DURATION, default="5 minutes", show_default=True, help="For epochs and checks."),
        click.option("--good-epochs", type=click.IntRange(min=1), default=3, show_default=True, help="Epochs the new code must commit."),
        store_option,
    ):
        command = add(command)
    return command


class UpgradeCommand(DocumentedCommand):
    """A command whose only argument is the job's name; code that is given behind it belongs to ``--code``."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse the arguments; a surplus one gets a hint at the option."""
        surplus = list(args)
        try:
            return super().parse_args(ctx, args)
        except click.UsageError as error:
            code = next((each for each in surplus if ":" in each or each.endswith((".yaml", ".yml"))), None)
            if "extra argument" in error.message and code is not None:
                raise click.UsageError(f"{error.message}. The new code is an option: --code {code}", ctx) from error
            raise


@click.command(
    cls=UpgradeCommand,
    examples=("tidemark upgrade fares --code new_fares:job --good-epochs 5", "tidemark upgrade fares --abort"),
)
@click.argument("job")
@click.option("--code", default=None, metavar="MODULE:JOB", help="The new code; without it, continue the upgrade.")
@click.option("--to", "code_by_its_old_name", default=None, hidden=True)
@click.option("--from", "back_to", default=None, metavar="SAVEPOINT", help="Rewind to it first.  [default: continue where the job is]")
@click.option("--version", default="", help="A label of the new code.")
@click.option("--code-path", "code_paths", multiple=True, metavar="PATH", help="Folder, zip or wheel with it.  [default: unchanged]")
@click.option("--folder", default=None, help="Working directory of its driver.  [default: unchanged]")
@click.option(
    "--env", "variables", multiple=True, metavar="KEY=VALUE", help="An additional environment variable for its driver; no secrets."
)
@map_options()
@click.option("--abort", is_flag=True, help="Roll back the upgrade that is under way.")
@click.option("--accept", is_flag=True, help="Keep the new code of the upgrade under way, whatever its checks said.")
@_probation
def upgrade(**given: Unpack[Given]) -> None:
    """Upgrade a job: check the new code, stop, take a savepoint, start it, watch it; roll back if it is unhealthy.

    After a crash a supervisor continues, or the same command given again; `tidemark status` shows its step. JOB is a job's name.
    """
    root, job = existing_store(given["store"]), given["job"]
    given["code"] = _code(given["code"], given["code_by_its_old_name"])
    if (given["code"] is not None) + given["abort"] + given["accept"] > 1:
        raise DefinitionError("--code, --abort and --accept exclude one another", fix="keep only one of them")
    if given["back_to"] is not None and given["code"] is None:
        raise DefinitionError(
            "--from requires --code", fix=f"name the new code, or use `tidemark rewind {job} --to SAVEPOINT` without new code"
        )
    upgrading = _upgrading(root, given["by"], as_json=given["as_json"])
    code = given["code"]
    if code is not None and read_spec(root, job) is None:
        _prepare(root, job, code, given)
        return
    if code is not None:
        begin_upgrade(root, _request(job, code, given), launchers=launchers_here(), by=given["by"] or current_user(), why=given["why"])
    elif given["abort"]:
        upgrading.require_abort(job, given["why"])
    elif given["accept"]:
        upgrading.accept(job, given["why"])
    _finish(upgrading, job, wait=given["wait"], timeout=given["timeout"], as_json=given["as_json"])


@click.command(cls=DocumentedCommand, examples=("tidemark promote fares-new",))
@click.argument("fork")
@click.option("--version", default="", help="A label of the fork's code.  [default: the fork's version]")
@_probation
def promote(
    *,
    fork: str,
    store: str | None,
    version: str,
    good_epochs: int,
    within: int,
    checks: tuple[str, ...],
    wait: bool,
    timeout: int,
    by: str,
    why: str,
    as_json: bool,
) -> None:
    """Upgrade a job to its fork's code: the job rewinds to where the fork began, and resumes with it. FORK is the fork's name."""
    root = existing_store(store)
    request = promotion_of(root, fork, version=version, good_epochs=good_epochs, within_ms=within, checks=checks)
    begin_upgrade(root, request, launchers=launchers_here(), by=by or current_user(), why=why or f"promotion of {fork}")
    _finish(_upgrading(root, by, as_json=as_json), request.job, wait=wait, timeout=timeout, as_json=as_json)


def _code(code: str | None, by_its_old_name: str | None) -> str | None:
    if by_its_old_name is None:
        return code
    if code is not None:
        raise DefinitionError("--to is the old name of --code, and both are given", fix="keep only --code")
    click.echo("--to is now --code, as for `tidemark fork`; the next release will not accept --to", err=True)
    return by_its_old_name


def _upgrading(root: JobStore, by: str, *, as_json: bool) -> Upgrading:
    return Upgrading(root, launchers_here(), by=by or current_user(), on_progress=(lambda _: None) if as_json else click.echo)


def _finish(upgrading: Upgrading, job: str, *, wait: bool, timeout: int, as_json: bool) -> None:
    end: UpgradeStep = upgrading.resume(job, timeout_ms=timeout) if wait else upgrading.require_step(job)
    if as_json:
        echo_json(end)
    elif not wait:
        click.echo(str(end))
        blocker = None if end.ended else read_blocker(upgrading.store, end)
        if blocker is not None:
            click.echo(f"  blocked since {format_ms(blocker.since)}: {blocker.text}")
    if end.step == "rolled-back":
        click.get_current_context().exit(UNHEALTHY_EXIT)


def _request(job: str, code: str, given: Given) -> UpgradeRequest:
    new = job_code(code)
    return UpgradeRequest(
        job,
        new.code,
        definition=new.definition,
        version=given["version"],
        code_paths=tuple(map(absolute_path, given["code_paths"])) or None,
        folder=absolute_path(given["folder"]) if given["folder"] is not None else None,
        variables=pairs("--env", given["variables"]),
        maps=_maps(given),
        good_epochs=given["good_epochs"],
        within_ms=given["within"],
        checks=given["checks"],
        back_to=given["back_to"] or "",
    )


def _prepare(root: JobStore, job: str, code: str, given: Given) -> None:
    """Check the code and take the savepoint for a job that was not submitted: its next run has the new code."""
    maps = _maps(given)
    new = job_code(code)
    spec = JobSpec(
        job,
        new.code,
        definition=new.definition,
        code_paths=tuple(map(absolute_path, given["code_paths"])),
        folder=given["folder"],
        variables=pairs("--env", given["variables"]),
    )
    back_to = given["back_to"]
    judge_code(root, spec, maps, back_to or HEAD).require(by_options=True)
    taken = SavepointStore(root, job).take(kind="before-upgrade", by=given["by"] or current_user(), note=given["why"] or f"before {code}")
    if given["as_json"]:
        echo_json({"job": job, "savepoint": taken.name, "epoch": taken.record.epoch, "submitted": False})
        return
    click.echo(
        f"{job} was not submitted: there is no driver to replace. The new code is compatible; savepoint {taken.name} keeps the state."
    )
    if back_to is not None:
        click.echo(f"First rewind it, with its tables: {next_command('rewind', job, '--to', back_to, store=given['store'])}.")
    words = ["run", code, *(() if maps.empty else ("--restore", back_to or taken.name))]
    words += [word for name, texts in (("--map", given["uids"]), ("--column", given["columns"])) for text in texts for word in (name, text)]
    words += ["--allow-non-restored-state"] if given["allow"] else []
    place = given["store"]
    runs = next_command(*words, store=place, variables=spec.variables, code_paths=spec.code_paths, folder=spec.folder)
    click.echo(f"Run the new code: {runs}. To roll back: {next_command('rewind', job, '--to', taken.name, store=place)}.")


def _maps(given: Given) -> Maps:
    return maps_of(given["uids"], given["columns"], allow=given["allow"])
