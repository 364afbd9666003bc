"""Dagster jobs that start, stop, restart, suspend and resume streaming jobs; they can be launched with their default config."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial

import dagster as dg

from tidemark.assets.definitions.job_health import build_health_checks
from tidemark.assets.streams.translator import TidemarkTranslator
from tidemark.clock import SYSTEM_CLOCK, Clock
from tidemark.control import JobSpec, Launcher, checked_spec, launchers_here, with_definition
from tidemark.errors import DefinitionError
from tidemark.graph import Job
from tidemark.operations.control_config import RequestForm, ResumeForm, StartForm, StopForm, SuspendForm, form_for
from tidemark.operations.control_ops import Operator, Verb
from tidemark.operations.launchpad import Operation, single_job
from tidemark.sensors.store_sensor import open_root

_VERBS: Mapping[Verb, tuple[type[RequestForm], bool, str]] = {
    "start": (StartForm, True, "Starts {job}, also after it failed, and waits until it runs."),
    "stop": (StopForm, True, "Stops {job} after the current epoch."),
    "cancel": (RequestForm, True, "Ends the driver of {job} at once, as a crash would; the next one runs the current epoch again."),
    "restart": (RequestForm, True, "Restarts the driver of {job} after the current epoch."),
    "suspend": (SuspendForm, False, "Requests that {job} stops after the current epoch, and does not wait for it."),
    "resume": (ResumeForm, False, "Requests that {job} runs again, and does not wait for it."),
}


def control_jobs(
    job: Job | None = None,
    *,
    spec: JobSpec | None = None,
    store: str | dg.EnvVar | None = None,
    translator: TidemarkTranslator | None = None,
    health_check: bool = True,
    launchers: Callable[[], Mapping[str, Launcher]] = launchers_here,
    clock: Clock = SYSTEM_CLOCK,
) -> dg.Definitions:
    """Return the Dagster jobs ``<job>_start``, ``_stop``, ``_cancel``, ``_restart``, ``_suspend`` and ``_resume``.

    Each writes a new generation of the job's spec, reconciles the job as a supervisor does, and waits, logging each change::

        defs = dg.Definitions.merge(defs, control_jobs(job, spec=JobSpec("taxi", "examples.taxi.job:job")))

    ``build_operations`` has them all in one Dagster job. The job's outputs also get the check ``job_runs``, which the reconcile and the
    health sensor report: assets of a job whose driver is dead turn red. Without a job they are called ``tidemark_start`` and so on, and
    ask for the name of any job of the store.

    Args:
        job: the job.
        spec: its spec; with it ``start`` submits a job that was never submitted. A file of YAML that it names is read now.
        store: folder or bucket of the job stores; the job's own by default.
        translator: gives the outputs their asset keys; they are observed with the savepoint that ``stop`` takes.
        health_check: add the check ``job_runs``; False where ``build_health_checks`` adds it.
        launchers: returns launchers of drivers, by name; called in a run.
        clock: processing time.

    Raises:
        DefinitionError: no store is known, or the spec is invalid or another job's.
    """
    given = require_store(job, store)
    operations = control_operations(job, spec=spec, store=given, translator=translator, launchers=launchers, clock=clock)
    checked_by = (
        build_health_checks(job, store=given, translator=translator, launchers=launchers, clock=clock)
        if job is not None and health_check
        else []
    )
    name = job.name if job is not None else None
    return dg.Definitions(jobs=[single_job(operation, name) for operation in operations], asset_checks=checked_by)


def control_operations(
    job: Job | None,
    *,
    spec: JobSpec | None,
    store: str | dg.EnvVar,
    translator: TidemarkTranslator | None,
    launchers: Callable[[], Mapping[str, Launcher]],
    clock: Clock,
) -> list[Operation]:
    """Return the operations that start and stop jobs; the arguments are those of ``control_jobs``.

    Raises:
        DefinitionError: the spec is invalid or another job's, or its file of YAML cannot be read.
    """
    name = job.name if job is not None else None
    submitted = checked_spec(with_definition(spec)) if spec is not None else None
    if submitted is not None and submitted.job != name:
        raise DefinitionError(f"the spec is that of job {submitted.job!r}", fix="pass that job, too", job=name)
    operator = Operator(lambda: open_root(store), launchers, submitted, clock, job, translator or TidemarkTranslator())
    return [
        Operation(verb, form_for(form, name, wait=wait), help_, partial(_carry_out, operator, verb))
        for verb, (form, wait, help_) in _VERBS.items()
    ]


def require_store(job: Job | None, store: str | dg.EnvVar | None) -> str | dg.EnvVar:
    """Return the store of operations: the given one, else the job's.

    Raises:
        DefinitionError: neither is known.
    """
    given = store if store is not None else job.store if job is not None else None
    if given is None:
        name = job.name if job is not None else None
        raise DefinitionError("the operations have no job store", fix="pass store=..., or Job(store=...)", job=name)
    return given


def _carry_out(operator: Operator, verb: Verb, context: dg.OpExecutionContext, config: RequestForm) -> None:
    operator.carry_out(context, verb, config)
