"""``tidemark submit``: writes a job's spec, so that a driver is started for it and kept running."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Unpack

import click

from tidemark.cli.jobs.restart_options import RestartGiven, restart_options, restart_policy
from tidemark.cli.jobs.start_stop import echo_generation, wait_for, wait_options
from tidemark.cli.program.documented_command import DocumentedCommand
from tidemark.cli.program.options import (
    DURATION,
    absolute_path,
    json_option,
    missing_epochs_option,
    open_store,
    pairs,
    request_options,
    store_option,
)
from tidemark.control.autoscaler.autoscaler_config import load_autoscaler_config
from tidemark.control.client.job_client import JobClient
from tidemark.control.desired.job_import import job_code, load_job
from tidemark.control.launch.launchers import launchers_here
from tidemark.control.model.autoscaler_settings import AutoscalerSettings
from tidemark.control.model.spec import AlertThresholds, JobSpec, LauncherName
from tidemark.errors import DefinitionError
from tidemark.state.log.progress import MissingEpochs
from tidemark.state.store.local_files import describe_nearest_folder
from tidemark.state.store.store import JobStore

_SHARE = click.FloatRange(0, 1)


class Given(RestartGiven):
    """The command's arguments and options by name."""

    code: str
    store: str | None
    name: str | None
    version: str
    suspended: bool
    trigger: int
    parallelism: int | None
    launcher: LauncherName
    master: str
    conf: tuple[str, ...]
    code_paths: tuple[str, ...]
    folder: str | None
    variables: tuple[str, ...]
    hang_after: int | None
    adaptive_intake: bool
    autoscaler: str | None
    standby: bool
    lag_warn: int | None
    lag_error: int | None
    late_warn: float
    late_error: float
    missing_epochs: MissingEpochs | None
    wait: bool
    timeout: int
    by: str
    why: str
    as_json: bool


@click.command(
    cls=DocumentedCommand,
    examples=(
        "tidemark submit rides:job --trigger '2 seconds' --why 'first version'",
        "tidemark submit rides:job --code-path dist/rides-1.0-py3-none-any.whl --version 1.0",
    ),
)
@click.argument("code", metavar="MODULE:JOB")
@store_option
@click.option("--name", default=None, help="The job's name; the code is then not imported here to find it.")
@click.option("--version", default="", help="A label of the code; changing it restarts the driver.")
@click.option("--suspended", is_flag=True, help="Do not start it yet.")
@click.option("--trigger", type=DURATION, default="10 seconds", show_default=True, help="An epoch at most this often.")
@click.option("--parallelism", type=click.IntRange(min=1), default=None, help="Shuffle partitions.  [default: the job's]")
@click.option("--launcher", type=click.Choice(["local", "spark-submit"]), default="local", show_default=True, help="What starts drivers.")
@click.option("--master", default="local[*]", show_default=True, help="Spark master.")
@click.option("--conf", multiple=True, metavar="KEY=VALUE", help="A Spark setting; may be repeated.")
@click.option("--code-path", "code_paths", multiple=True, metavar="PATH", help="Folder, zip or wheel with the code; may be repeated.")
@click.option("--folder", default=None, help="The driver's working directory.  [default: this one]")
@click.option("--env", "variables", multiple=True, metavar="KEY=VALUE", help="An environment variable for the job's module; no secrets.")
@restart_options
@click.option("--hang-after", type=DURATION, default=None, help="An epoch that takes this long hangs.  [default: 10 triggers, at least 5m]")
@click.option("--adaptive-intake", is_flag=True, help="Adapt an epoch's intake to the duration of the last epochs.")
@click.option("--autoscaler", type=click.Path(dir_okay=False), default=None, help="TOML file of the autoscaler.  [default: advise only]")
@click.option("--standby", is_flag=True, help="Keep a second process ready to take over when the driver dies; takes a JVM's memory.")
@click.option("--lag-warn", type=DURATION, default=None, help="Watermark lag that is a warning.")
@click.option("--lag-error", type=DURATION, default=None, help="Watermark lag that is an error.")
@click.option(
    "--late-warn", type=_SHARE, default=AlertThresholds.late_warn, show_default=True, help="Share of late rows that is a warning."
)
@click.option(
    "--late-error", type=_SHARE, default=AlertThresholds.late_error, show_default=True, help="Share of late rows that is an error."
)
@missing_epochs_option
@wait_options
@request_options
@json_option
def submit(**given: Unpack[Given]) -> None:
    """Submit a job, or change its spec, and wait until it works.

    It works once its driver has published an epoch, or has polled its sources and found no input; if the driver fails before, the command
    ends with the driver's own error and exit code 3. The job's code is imported here first, so that errors in it are found now; with --name
    it is not.
    """
    root, job = _named(given)
    spec = _spec(job, given)
    made = JobClient(root, given["by"]).submit(spec, given["why"], missing_epochs=given["missing_epochs"])
    if given["suspended"] or not given["wait"]:
        echo_generation(made, as_json=given["as_json"])
        return
    wait_for(root, made, "working", timeout_ms=given["timeout"], as_json=given["as_json"], launchers=launchers_here())


def _named(given: Given) -> tuple[JobStore, str]:
    """Return the store and the job's name: as given, else from the code."""
    if given["name"] is None or given["wait"]:
        _require_places(given)
    if given["name"] is not None:
        return open_store(given["store"]), given["name"]
    # The driver will have these, so importing the code here has them, too.
    os.environ.update(pairs("--env", given["variables"]))
    sys.path[:0] = ["", *map(absolute_path, filter(None, (given["folder"], *given["code_paths"])))]
    found = load_job(given["code"])
    return open_store(given["store"] or found.store), found.name


def _require_places(given: Given) -> None:
    """Raise for code paths and a folder that do not exist; with ``--name --no-wait`` they need to exist only where the driver is started.

    Raises:
        DefinitionError: one does not exist.
    """
    for option, path in (*(("--code-path", path) for path in given["code_paths"]), ("--folder", given["folder"] or ".")):
        place = Path(absolute_path(path))
        if "://" not in path and not place.exists():
            raise DefinitionError(f"{option} {place} does not exist", fix=f"give an existing path: {describe_nearest_folder(place)}")


def _spec(job: str, given: Given) -> JobSpec:
    code = job_code(given["code"])
    return JobSpec(
        job,
        code.code,
        definition=code.definition,
        version=given["version"],
        wanted="suspended" if given["suspended"] else "running",
        trigger_ms=given["trigger"],
        parallelism=given["parallelism"],
        launcher=given["launcher"],
        master=given["master"],
        conf=pairs("--conf", given["conf"]),
        code_paths=tuple(absolute_path(path) for path in given["code_paths"]),
        folder=absolute_path(given["folder"] or "."),
        variables=pairs("--env", given["variables"]),
        restart=restart_policy(given),
        adaptive_intake=given["adaptive_intake"],
        standby=given["standby"],
        autoscaler=load_autoscaler_config(given["autoscaler"]) if given["autoscaler"] is not None else AutoscalerSettings(),
        alerts=AlertThresholds(given["lag_warn"], given["lag_error"], given["late_warn"], given["late_error"]),
        hang_after_ms=given["hang_after"],
    )
