"""The ``tidemark`` command: run a job, have it run on, see how it is, what it did, and how it is built.

Only ``run`` and ``state show JOB UID`` start a JVM in this process; ``submit``, ``start``, ``restart`` and ``supervise``
start drivers that have their own.
"""

from __future__ import annotations

from typing import Final

import click

from tidemark.cli.program.command_groups import Sections, TidemarkGroup, entries

SECTIONS: Final[Sections] = {
    "Run a job here": entries(
        ("run", "jobs.running:run", "Run a job in this process, until its input is read, or with --trigger until it is stopped."),
        ("graph", "jobs.running:graph", "Draw a job's graph."),
        ("class-archive", "program.class_archive:class_archive", "Make Java's archive of Spark's classes, with which Spark starts faster."),
    ),
    "Have a job run on": entries(
        ("submit", "jobs.submitting:submit", "Submit a job, or change how it is wanted, and wait until it works."),
        ("supervise", "jobs.supervising:supervise", "Keep the jobs of a store running; send alerts and serve metrics."),
    ),
    "Watch jobs": entries(
        ("list", "show.status:list_jobs", "List the jobs of a store, one line each."),
        ("status", "show.status:status", "Show how a job is, and what to do where it is not well."),
        ("top", "show.top:top", "Watch a job, or all jobs, until Ctrl-C."),
        ("history", "show.status:history", "Show a job's newest epochs, or who changed what (--changes)."),
        ("logs", "show.status:logs", "Show the log of a job's driver."),
        ("state", "show.show_state:state", "Show what a job keeps of its windows and keys."),
        ("silence", "jobs.silence:silence", "Keep alerts back for a while."),
    ),
    "Steer a job": entries(
        ("start", "jobs.start_stop:start", "Start a job that was stopped or has failed."),
        ("stop", "jobs.start_stop:stop", "Stop a job after the epoch that runs; --drain reads all input and closes all windows first."),
        ("restart", "jobs.start_stop:restart", "Start a job's driver again after the epoch that runs."),
        ("cancel", "jobs.start_stop:cancel", "End a job's driver at once; the epoch that runs is run again by the next."),
        ("suspend", "jobs.start_stop:suspend", "Ask for a job to stop, and leave that to a supervisor."),
        ("resume", "jobs.start_stop:resume", "Ask for a job to run again, and leave that to a supervisor."),
        ("rescale", "savepoints.rewinding:rescale", "Run a job at another parallelism, without a restart."),
    ),
    "Savepoints: go back, try other code": entries(
        ("savepoint", "savepoints.savepointing:savepoint", "Take, list, show, compare, export, import and dispose of savepoints."),
        ("rewind", "savepoints.rewinding:rewind", "Put a job back to a savepoint, with its Delta tables."),
        ("fork", "savepoints.forking:fork", "Start a job's variant from a savepoint, with tables of its own."),
        ("diff", "savepoints.forking:diff", "Compare the rows of an output in two jobs' tables."),
        ("discard", "savepoints.forking:discard", "Delete a fork that was stopped, with its tables."),
    ),
    "Upgrade": entries(
        ("check", "jobs.checking:check_job", "Check whether changed code can resume from the stored state; for continuous integration."),
        ("upgrade", "jobs.upgrading:upgrade", "Give a job other code, watch it, and put all back if it is not well."),
        ("promote", "jobs.upgrading:promote", "Give a job the code of its fork."),
    ),
}


_HELP: Final = """Event-time streams on Spark, with Flink's semantics.

\b
Start here:
  tidemark graph first_job:job     what the job of docs/how-to/first-job.md does
  tidemark run first_job:job       run it until its input is read
  tidemark status                  how it is
  tidemark submit first_job:job    have it run on, in the background
"""


@click.group(
    cls=TidemarkGroup,
    help=_HELP,
    sections=SECTIONS,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="`tidemark COMMAND --help` says more of each, with its options. The pages are in docs/; begin with docs/how-to/first-job.md.",
)
@click.version_option(package_name="tidemark")
def main() -> None:
    """Event-time streams on Spark, with Flink's semantics."""
