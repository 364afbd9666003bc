"""Runs the operations on jobs: writes a request, reconciles the job, waits while logging each change, reports the outcome."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

import dagster as dg

from tidemark.assets.streams.translator import TidemarkTranslator
from tidemark.assets.values.metadata_values import MetadataValues
from tidemark.clock import SYSTEM_CLOCK, Clock
from tidemark.control import (
    Goal,
    JobClient,
    JobSpec,
    JobView,
    Launcher,
    SpecGeneration,
    StopMode,
    Waiting,
    current_user,
    observe,
    read_spec,
    upgrading_reconciler,
    view_of,
)
from tidemark.durations import to_ms
from tidemark.errors import DefinitionError
from tidemark.graph import Job
from tidemark.operations.control_config import RequestForm, ResumeForm, StartForm, StopForm, SuspendForm
from tidemark.operations.wait import require_reached, status_line, view_metadata, wait_for_goal
from tidemark.state import JobStore

if TYPE_CHECKING:
    from tidemark.operations.savepoint_ops import SavepointOperator

Verb = Literal["start", "stop", "cancel", "restart", "suspend", "resume"]
GOALS: Mapping[Verb, Goal] = {
    "start": "working",
    "stop": "ended",
    "cancel": "ended",
    "restart": "working",
    "suspend": "ended",
    "resume": "working",
}


@dataclass(frozen=True)
class Operator:
    """Runs the operations on jobs.

    Args:
        open_store: opens the root store.
        launchers: returns launchers of drivers, by name.
        spec: the spec with which the job of this code location is submitted; None where it is submitted elsewhere.
        clock: processing time.
        job: the job of this code location, whose outputs are observed with a savepoint; None where jobs are known by name only.
        translator: gives the outputs their asset keys.
    """

    open_store: Callable[[], JobStore]
    launchers: Callable[[], Mapping[str, Launcher]]
    spec: JobSpec | None = None
    clock: Clock = SYSTEM_CLOCK
    job: Job | None = None
    translator: TidemarkTranslator = field(default_factory=TidemarkTranslator)

    def carry_out(self, context: dg.OpExecutionContext, verb: Verb, form: RequestForm) -> None:
        """Write a request and reconcile the job; the output's metadata has the outcome.

        Raises:
            dagster.Failure: the job failed, or does not run although it should.
            NotReachedError: the timeout expired; the request stays in effect.
            TidemarkError: the request is invalid, or the store cannot be reached.
        """
        timeout_ms = to_ms(form.timeout, what="timeout", minimum=1)
        root, launchers = self.open_store(), self.launchers()
        savepoint = form.savepoint if isinstance(form, StopForm) else None
        if savepoint is not None:
            self._require_possible(root, form, savepoint)
        begun = self.clock.monotonic()
        made = self._ask(JobClient(root, f"{current_user()} (Dagster run {context.run_id[:8]})", self.clock), verb, form)
        context.log.info("%s: generation %d, wanted %s", form.job, made.generation, made.spec.wanted)
        if form.wait:
            view = wait_for_goal(context, Waiting(root, launchers, self.clock), made, GOALS[verb], timeout_ms=timeout_ms)
        else:
            # One pass: a supervisor or sensor continues from here; without either the request still stays in effect.
            upgrading_reconciler(root, launchers, self.clock).reconcile_all([form.job])
            view = view_of(observe(root, form.job, launchers), self.clock.now_ms())
            context.log.info("%s", status_line(view))
        metadata = outcome(view, made, seconds=self.clock.monotonic() - begun)
        if form.wait:
            require_reached(view, GOALS[verb], metadata)
        context.add_output_metadata(
            {**metadata, **(self._savepoints.take_final(context, form, savepoint) if savepoint is not None else {})}
        )

    @property
    def _savepoints(self) -> SavepointOperator:
        from tidemark.operations.savepoint_ops import SavepointOperator  # its import loads the Delta library

        return SavepointOperator(self.open_store, self.launchers, self.job, self.translator, self.clock)

    def _require_possible(self, root: JobStore, form: RequestForm, savepoint: str) -> None:
        """Check the savepoint's name before the job is stopped for it."""
        if not form.wait:
            raise DefinitionError(
                "the savepoint is taken after the job has ended, and without `wait` the run does not wait for that",
                fix="set `wait: true`, or leave `savepoint` out",
                job=form.job,
            )
        if savepoint:
            from tidemark.savepoints import SavepointStore  # its import loads the Delta library, too

            SavepointStore(root, form.job, self.clock).require_free(savepoint)

    def _ask(self, client: JobClient, verb: Verb, form: RequestForm) -> SpecGeneration:
        match verb:
            case "start" | "resume":
                self._submit(client, form)
                missing = form.missing_epochs if isinstance(form, StartForm) and form.missing_epochs != "refuse" else None
                return client.start(form.job, form.why or ("resume" if verb == "resume" else ""), missing_epochs=missing)
            case "stop" | "suspend":
                how: StopMode = form.how if isinstance(form, SuspendForm) else "finish"
                return client.stop(form.job, how, form.why or ("suspend" if verb == "suspend" else ""))
            case "cancel":
                return client.stop(form.job, "now", form.why)
            case "restart":
                return client.restart(form.job, form.why)

    def _submit(self, client: JobClient, form: RequestForm) -> None:
        """Submit the job with this code location's spec, if it was never submitted or ``resubmit`` is set."""
        if self.spec is None or self.spec.job != form.job:
            return
        known = read_spec(client.store, form.job)
        if known is None or (isinstance(form, ResumeForm) and form.resubmit):
            client.submit(self.spec, form.why)


def outcome(view: JobView, made: SpecGeneration, *, seconds: float) -> MetadataValues:
    """Return the outcome of a request as metadata.

    Args:
        view: the job afterwards.
        made: the generation that the request wrote.
        seconds: how long it took.
    """
    return {
        **view_metadata(view),
        "tidemark/generation": made.generation,
        "tidemark/wanted": made.spec.wanted,
        "tidemark/asked_by": made.by,
        "tidemark/seconds": round(seconds, 3),
    }
