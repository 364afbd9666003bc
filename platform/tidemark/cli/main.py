"""The ``tidemark`` command: run a job, have it run on, see how it is, what it did, and how it is built.

Only ``run`` and ``state show JOB UID`` start a JVM in this process; ``submit``, ``start``, ``restart`` and ``supervise``
start drivers that have their own.
"""

from __future__ import annotations

import click

from tidemark.cli.archiving import class_archive
from tidemark.cli.checking import check_job
from tidemark.cli.forking import diff, discard, fork
from tidemark.cli.looking import history, list_jobs, logs, status
from tidemark.cli.options import TidemarkGroup
from tidemark.cli.rewinding import rescale, rewind
from tidemark.cli.running import graph, run
from tidemark.cli.savepointing import savepoint
from tidemark.cli.silencing import silence
from tidemark.cli.state_showing import state
from tidemark.cli.steering import cancel, restart, resume, start, stop, suspend
from tidemark.cli.submitting import submit
from tidemark.cli.supervising import supervise
from tidemark.cli.top import top
from tidemark.cli.upgrading import promote, upgrade


@click.group(cls=TidemarkGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="tidemark")
def main() -> None:
    """Event-time streams on Spark, with Flink's semantics."""


for _command in (
    run,
    graph,
    check_job,
    state,
    submit,
    start,
    stop,
    cancel,
    restart,
    suspend,
    resume,
    list_jobs,
    status,
    history,
    logs,
    top,
    supervise,
    silence,
    savepoint,
    rewind,
    rescale,
    fork,
    diff,
    discard,
    promote,
    upgrade,
    class_archive,
):
    main.add_command(_command)
