"""The ``tidemark`` command: run, submit, watch and upgrade jobs, and show how they are built.

Only ``run`` and ``state show JOB UID`` start a JVM in this process; ``submit``, ``start``, ``restart`` and ``supervise``
start drivers that have their own.
"""

from __future__ import annotations

from typing import Final

import click

from tidemark.cli.program.command_groups import Sections, TidemarkGroup, entries

SECTIONS: Final[Sections] = {
    "Run jobs": entries(
        ("new", "projects.new:new", "Create a project that runs: a job, a generator of data, Dagster definitions, a test."),
        ("run", "jobs.running:run", "Run a job in this process until its input is read; with --trigger until it is stopped."),
        ("graph", "jobs.running:graph", "Draw a job's graph."),
        ("submit", "jobs.submitting:submit", "Submit a job, or change its spec, and wait until it works."),
        ("supervise", "jobs.supervising:supervise", "Keep the jobs of a store running; send alerts and serve metrics."),
    ),
    "Watch jobs": entries(
        ("list", "show.status:list_jobs", "List the jobs of a store, one line each."),
        ("status", "show.status:status", "Show a job's state and health, and what to do if it is unhealthy."),
        ("top", "top.top:top", "Watch all jobs, or one, with their lag, rows and late rows over time; q ends it."),
        ("ui", "web.ui:ui", "Serve a page of the jobs, and the REST API behind it."),
        ("token", "web.ui:token", "Make a token for the page and the REST API."),
        ("history", "show.status:history", "Show a job's latest epochs, or who changed what (--changes)."),
        ("logs", "show.status:logs", "Show the log of a job's driver."),
        ("state", "show.show_state:state", "Show a job's stored state: windows and keys."),
        ("wait", "show.waiting:wait", "Wait until the results of a file, a record of Kafka or an epoch are visible in a job's outputs."),
        ("profile", "show.profile:profile", "Draw flame graphs of a running driver: where its JVM and its Python spend their time."),
        ("silence", "jobs.silence:silence", "Silence alerts for a time."),
    ),
    "Steer jobs": entries(
        ("start", "jobs.start_stop:start", "Start a job that was stopped or has failed."),
        ("stop", "jobs.start_stop:stop", "Stop a job after the current epoch; --drain reads all input and closes all windows first."),
        ("restart", "jobs.start_stop:restart", "Restart a job's driver after the current epoch."),
        ("cancel", "jobs.start_stop:cancel", "End a job's driver at once; the next driver runs the current epoch again."),
        ("suspend", "jobs.start_stop:suspend", "Request that a job stops; a supervisor stops it."),
        ("resume", "jobs.start_stop:resume", "Request that a job runs again; a supervisor starts it."),
        ("rescale", "savepoints.rewinding:rescale", "Change a job's parallelism without a restart."),
        ("autoscale", "jobs.autoscaling:autoscale", "Show what a job's autoscaler recommends and did, or change its settings."),
    ),
    "Savepoints: rewind, fork, compare": entries(
        ("savepoint", "savepoints.savepointing:savepoint", "Take, list, show, compare, export, import and dispose of savepoints."),
        ("rewind", "savepoints.rewinding:rewind", "Rewind a job to a savepoint, with its Delta tables."),
        ("fork", "savepoints.forking:fork", "Start a variant of a job from a savepoint, with separate tables."),
        ("diff", "savepoints.forking:diff", "Compare the rows of an output in two jobs' tables."),
        ("discard", "savepoints.forking:discard", "Delete a stopped fork, with its tables."),
    ),
    "Upgrade": entries(
        ("check", "jobs.checking:check_job", "Check whether changed code is compatible with the stored state; for continuous integration."),
        ("upgrade", "jobs.upgrading:upgrade", "Upgrade a job to new code, watch it, and roll back if it is unhealthy."),
        ("promote", "jobs.upgrading:promote", "Upgrade a job to the code of its fork."),
    ),
    "This machine": entries(
        ("connectors", "jobs.connectors:connectors", "Install the jars of Spark's connectors: Kafka, Avro, Postgres, S3."),
        ("class-archive", "program.class_archive:class_archive", "Create a Java archive of Spark's classes, so that Spark starts faster."),
    ),
}


_HELP: Final = """Event-time streams on Spark, with Flink's semantics.

\b
Start here:
  tidemark new rides               create a project in a folder of that name
  tidemark graph first_job:job     show the graph of the job in docs/how-to/first-job.md
  tidemark run first_job:job       run it until its input is read
  tidemark status                  show its state
  tidemark submit first_job:job    keep it running in the background
"""


@click.group(
    cls=TidemarkGroup,
    help=_HELP,
    sections=SECTIONS,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="`tidemark COMMAND --help` shows a command's options. The documentation is in docs/; start with docs/how-to/first-job.md.",
)
@click.version_option(package_name="tidemark")
def main() -> None:
    """Event-time streams on Spark, with Flink's semantics."""
