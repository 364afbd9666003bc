"""Runs the operations on savepoints; each returns its outcome as metadata."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field

import dagster as dg

from tidemark.assets.report.savepoint_observations import output_keys, savepoint_metadata, savepoint_observations
from tidemark.assets.streams.translator import TidemarkTranslator
from tidemark.assets.values.metadata_values import MetadataItem
from tidemark.clock import SYSTEM_CLOCK, Clock
from tidemark.control import (
    JobClient,
    Judge,
    Launcher,
    Maps,
    RestoreRequest,
    Rewinder,
    SavepointClient,
    SpecGeneration,
    Waiting,
    current_user,
    diff_output,
    discard,
    fork,
    job_code,
    judge_code,
    read_control_status,
    read_spec,
    request_restore,
    shared_tables,
)
from tidemark.durations import to_ms
from tidemark.errors import DefinitionError, UnknownSavepointError
from tidemark.graph import Job
from tidemark.operations.control_config import RequestForm
from tidemark.operations.savepoint_config import (
    DiffForm,
    DiscardForm,
    DisposeForm,
    ExportForm,
    ForkForm,
    MaintenanceForm,
    RenamingForm,
    RescaleForm,
    RestoreForm,
    RewindForm,
    SavepointForm,
    WaitForm,
)
from tidemark.operations.wait import require_reached, wait_for_goal
from tidemark.savepoints import (
    Savepoint,
    SavepointRetention,
    SavepointStore,
    SweptJob,
    preview_rewind,
    retire_savepoints,
    sweep_job,
    vacuum_tables,
)
from tidemark.sensors.reports.reported_events import ReportedEvents
from tidemark.state import JobStore

EXPORTS = "_exports"
"""Default folder of exports in the job store; no job can have this name."""

Found = dict[str, MetadataItem]


@dataclass(frozen=True)
class SavepointOperator:
    """Runs the operations on savepoints.

    Args:
        open_store: opens the root store.
        launchers: returns launchers of drivers, by name.
        job: the job of this code location, whose outputs are observed; None where jobs are known by name only.
        translator: gives the outputs their asset keys.
        clock: processing time.
        judge: checks code against stored state.
    """

    open_store: Callable[[], JobStore]
    launchers: Callable[[], Mapping[str, Launcher]]
    job: Job | None = None
    translator: TidemarkTranslator = field(default_factory=TidemarkTranslator)
    clock: Clock = SYSTEM_CLOCK
    judge: Judge = judge_code

    def take(self, context: dg.OpExecutionContext, form: SavepointForm) -> Found:
        """Take a savepoint, and observe the outputs with it."""
        name, lineage, labels = form.name or None, form.lineage or None, dict(form.labels)
        if form.kind == "manual":
            client = self._client(context, form.job)
            taken = client.take(name, epoch=form.epoch, lineage=lineage, note=form.why, labels=labels)
        else:
            # What a schedule launches is no request, and would crowd these out of the job's history.
            taken = self._savepoints(form.job).take(
                name, epoch=form.epoch, lineage=lineage, kind=form.kind, by=caller(context), note=form.why, labels=labels
            )
        return self._observe_taken(context, self._savepoints(form.job), taken)

    def take_final(self, context: dg.OpExecutionContext, form: RequestForm, name: str) -> Found:
        """Take a savepoint of a stopped job, and observe the outputs with it; without a name it gets a generated one."""
        client = self._client(context, form.job)
        return self._observe_taken(context, client.savepoints, client.take(name or None, kind="stop", note=form.why))

    @contextmanager
    def observing(self, context: dg.OpExecutionContext, job: str) -> Iterator[None]:
        """Observe the outputs with each savepoint of a job that is taken while the block runs, also if it raises."""
        found = SavepointStore(self.open_store(), job, self.clock)
        before = {savepoint.name for savepoint in found.list()}
        try:
            yield
        finally:
            for savepoint in found.list():
                if savepoint.name not in before:
                    self._observe(context, found, savepoint)

    def dispose(self, context: dg.OpExecutionContext, form: DisposeForm) -> Found:
        """Dispose of named savepoints, or of those that retention no longer keeps."""
        client = self._client(context, form.job)
        done = client.dispose(form.names, form.why) if form.names else client.retire(_retention(form.keep, form.age), form.why)
        gone = ", ".join(each.name for each in done)
        context.log.info("%s: disposed of %s", form.job, gone or "nothing")
        return {"tidemark/disposed": gone, "tidemark/savepoints": len(client.savepoints.list())}

    def export(self, context: dg.OpExecutionContext, form: ExportForm) -> Found:
        """Copy a savepoint with all its files into one folder."""
        found = self._savepoints(form.job)
        savepoint = self._chosen(found, form.savepoint)
        to = form.to or str(found.store.at(EXPORTS).at(form.job).at(savepoint.name).location)
        index = self._client(context, form.job).export(savepoint.name, to, why=form.why)
        context.log.info("%s: %d files, %d bytes at %s", savepoint.name, len(index.files), index.bytes, to)
        exported: Found = {"tidemark/export": dg.MetadataValue.path(to), "tidemark/files": len(index.files), "tidemark/bytes": index.bytes}
        return {**savepoint_metadata(savepoint, found.restorable(savepoint)[0], found.folder), **exported}

    def rewind(self, context: dg.OpExecutionContext, form: RewindForm) -> Found:
        """Rewind a job to a savepoint with its tables, or only report the plan."""
        timeout_ms = to_ms(form.timeout, what="timeout", minimum=1)
        if form.abort:
            return self._abort_rewind(context, form)
        if not form.savepoint and not form.dry_run:
            raise DefinitionError(
                "a rewind must name its savepoint, since the newest one may differ when the run is launched again",
                fix="set `savepoint`; a run with `dry_run` shows which one is the newest",
                job=form.job,
            )
        found = self._savepoints(form.job)
        savepoint = self._chosen(found, form.savepoint)
        if form.dry_run:
            plan = preview_rewind(found.store, form.job, savepoint.name, clock=self.clock)
            lines = [f"from epoch {plan.from_epoch} back to epoch {plan.epoch} ({plan.savepoint})"]
            lines += [f"table of {output}: publishes the committed epoch {plan.from_epoch} first" for output in plan.unpublished]
            lines += [f"table of {output}: back to version {plan.tables[output].version}" for output in plan.changed]
            lines += [f"output {output} is not reverted: {meaning}" for output, meaning in plan.left.items()]
            lines += [f"refused: {reason}" for reason in plan.refusals]
            for line in lines:
                context.log.info("%s", line)
            metadata: Found = {"tidemark/plan": dg.MetadataValue.md("\n".join(f"- {line}" for line in lines))}
            return {**metadata, "tidemark/refusals": len(plan.refusals), "tidemark/dry_run": True}
        rewinder = Rewinder(found.store, self.launchers(), timeout_ms, caller(context), self.clock, on_progress=context.log.info)
        with self.observing(context, form.job):
            done = rewinder.rewind(form.job, savepoint.name, stop=form.stop, why=form.why)
        metadata = {"tidemark/epoch": done.head.epoch, "tidemark/lineage": done.head.lineage, "tidemark/savepoint": savepoint.name}
        if done.view is not None:
            metadata["tidemark/lifecycle"] = done.view.lifecycle
            require_reached(done.view, "running", metadata)
        return metadata

    def _abort_rewind(self, context: dg.OpExecutionContext, form: RewindForm) -> Found:
        """Abort a rewind that has not reverted a table yet."""
        if form.savepoint:
            raise DefinitionError("`savepoint` and `abort` exclude one another", fix="set only one of them", job=form.job)
        rewinder = Rewinder(self.open_store(), self.launchers(), 0, caller(context), self.clock, on_progress=context.log.info)
        journal = rewinder.abort(form.job)
        return {"tidemark/savepoint": journal.savepoint, "tidemark/aborted": True}

    def fork(self, context: dg.OpExecutionContext, form: ForkForm) -> Found:
        """Submit a variant of a job that resumes from a savepoint and writes separate tables."""
        timeout_ms = to_ms(form.timeout, what="timeout", minimum=1)
        found = self._savepoints(form.job)
        savepoint = self._chosen(found, form.savepoint)
        new = job_code(form.code) if form.code else None
        made = fork(
            found.store,
            form.job,
            savepoint.name,
            name=form.name or fork_name(form.job),
            code=new.code if new is not None else None,
            definition=new.definition if new is not None else None,
            version=form.version,
            code_paths=tuple(form.code_paths) or None,
            folder=form.folder or None,
            variables=dict(form.variables),
            outputs=form.outputs or None,
            maps=maps_of(form),
            start=form.start,
            by=caller(context),
            why=form.why,
            clock=self.clock,
            judge=self.judge,
        )
        tables = dg.MetadataValue.path(made.spec.outputs_root or "")
        metadata: Found = {"tidemark/fork": made.spec.job, "tidemark/tables": tables, "tidemark/savepoint": savepoint.name}
        return self._wait_until_running(context, form, made, metadata, timeout_ms)

    def diff(self, context: dg.OpExecutionContext, form: DiffForm) -> Found:
        """Compare outputs' rows in two jobs' tables, such as a job's and its fork's."""
        root, other = self.open_store(), form.other or fork_name(form.job)
        outputs = (form.output,) if form.output else shared_tables(root, form.job, other)
        found = {output: diff_output(root, form.job, other, output, keys=tuple(form.keys), samples=form.samples) for output in outputs}
        text = "\n".join(f"{output}: {diff.text()}" for output, diff in found.items())
        context.log.info("%s against %s\n%s", form.job, other, text)
        metadata: Found = {"tidemark/other": other, "tidemark/equal": all(diff.equal for diff in found.values())}
        for name in ("same", "added", "removed", "changed", "left_out"):
            metadata[f"tidemark/{name}"] = sum(getattr(diff, name) for diff in found.values())
        return {**metadata, "tidemark/rows": dg.MetadataValue.md(f"```text\n{text}\n```")}

    def discard(self, context: dg.OpExecutionContext, form: DiscardForm) -> Found:
        """Delete a fork that was stopped, with its tables."""
        if not form.fork:
            raise DefinitionError(
                "a discard must name its fork, since the fork's tables are deleted for good",
                fix=f"set `fork`; a fork without a given name is {fork_name(form.job)!r}",
                job=form.job,
            )
        gone = discard(self.open_store(), form.fork, of=form.job, by=caller(context), clock=self.clock)
        for place in gone:
            context.log.info("deleted %s", place)
        return {"tidemark/fork": form.fork, "tidemark/deleted": dg.MetadataValue.md("\n".join(f"- {place}" for place in gone))}

    def rescale(self, context: dg.OpExecutionContext, form: RescaleForm) -> Found:
        """Change a submitted job's parallelism from its next epoch on."""
        timeout_ms = to_ms(form.timeout, what="timeout", minimum=1)
        words = "as the job has it" if form.parallelism is None else str(form.parallelism)
        made = JobClient(self.open_store(), caller(context), self.clock).rescale(form.job, form.parallelism, form.why)
        return self._wait_until_running(context, form, made, {"tidemark/parallelism": words}, timeout_ms)

    def restore(self, context: dg.OpExecutionContext, form: RestoreForm) -> Found:
        """Restore a submitted job from a savepoint, once; its driver is restarted for it, and tables are not reverted."""
        if not form.savepoint:
            raise DefinitionError(
                "a restore must name its savepoint, since rows of later epochs that the tables have are written again",
                fix="set `savepoint`; to revert the tables, too, launch the rewind",
                job=form.job,
            )
        timeout_ms = to_ms(form.timeout, what="timeout", minimum=1)
        request = RestoreRequest(
            form.job,
            form.savepoint,
            context.run.root_run_id or context.run_id,  # a run that is executed again restores once
            savepoint_of=form.savepoint_of,
            maps=maps_of(form),
            mode=form.mode,
            parallelism=form.parallelism,
        )
        made = request_restore(self.open_store(), request, by=caller(context), why=form.why, clock=self.clock, judge=self.judge)
        if not made.is_due:
            context.log.warning("%s was already restored from %s for this run; to do it again, launch a new run", form.job, form.savepoint)
        return self._wait_until_running(context, form, made.generation, {"tidemark/savepoint": form.savepoint}, timeout_ms)

    def maintain(self, context: dg.OpExecutionContext, form: MaintenanceForm) -> Found:
        """Dispose of savepoints that retention no longer keeps, delete unreferenced state files and old files of tables."""
        found = self._savepoints(form.job)
        gone = retire_savepoints(found.store, form.job, _retention(form.keep, form.age), clock=self.clock)
        metadata: Found = {"tidemark/disposed": ", ".join(gone), "tidemark/savepoints": len(found.list())}
        if form.sweep:
            submitted, status = read_spec(found.store, form.job), read_control_status(found.store, form.job)
            # A failed job gets no driver, which would sweep otherwise.
            failed = status is not None and status.lifecycle == "failed"
            runs = submitted is not None and submitted.spec.wanted == "running" and not failed
            swept = SweptJob(running=True) if runs else sweep_job(found.store, form.job, clock=self.clock)
            metadata["tidemark/swept"] = not swept.running
            if swept.running:
                context.log.info("%s runs, or another process works on it: nothing was swept here; its driver sweeps", form.job)
            else:
                metadata |= {"tidemark/files_marked": swept.marked, "tidemark/files_deleted": swept.deleted}
        if form.vacuum:
            for output, files in vacuum_tables(found.store, form.job, clock=self.clock).items():
                metadata[f"tidemark/vacuumed_{output}"] = files
        return metadata

    def _wait_until_running(
        self, context: dg.OpExecutionContext, form: WaitForm, made: SpecGeneration, extra: Found, timeout_ms: int
    ) -> Found:
        """If ``wait`` is set and the job should run, wait until it runs with the new spec; returns the outcome."""
        metadata = {**_spec_metadata(made), **extra}
        if not form.wait or made.spec.wanted != "running":
            return metadata
        view = wait_for_goal(context, Waiting(self.open_store(), self.launchers(), self.clock), made, "running", timeout_ms=timeout_ms)
        metadata["tidemark/lifecycle"] = view.lifecycle
        require_reached(view, "running", metadata)
        return metadata

    def _observe_taken(self, context: dg.OpExecutionContext, found: SavepointStore, taken: Savepoint) -> Found:
        context.log.info("%s", taken)
        self._observe(context, found, taken)
        return dict(savepoint_metadata(taken, found.restorable(taken)[0], found.folder, run_id=context.run_id))

    def _observe(self, context: dg.OpExecutionContext, found: SavepointStore, savepoint: Savepoint) -> None:
        # A sensor may have reported it first, since a rewind or an upgrade is observed only at its end.
        reported = ReportedEvents(context.instance)
        # An operation may be launched for another job than the code location's, such as a fork.
        own = self.job if self.job is not None and self.job.name == savepoint.job else None
        every = output_keys(savepoint, own, self.translator)
        keys = {output: key for output, key in every.items() if not reported.knows_savepoint(key, savepoint)}
        (restorable,) = found.restorable(savepoint)
        for observation in savepoint_observations(savepoint, restorable, found.folder, keys, run_id=context.run_id):
            context.log_event(observation)

    def _savepoints(self, job: str) -> SavepointStore:
        return SavepointStore(self.open_store(), job, self.clock)

    def _client(self, context: dg.OpExecutionContext, job: str) -> SavepointClient:
        """Return the client whose requests are in the job's history under the run's name."""
        return SavepointClient(self.open_store(), job, caller(context), self.clock)

    def _chosen(self, found: SavepointStore, name: str) -> Savepoint:
        """Return the named savepoint, else the newest; not one that a rewind took, which has the state that was rewound from."""
        if name:
            return found.get(name)
        known = [savepoint for savepoint in found.list() if savepoint.info.kind != "before-rewind"]
        if not known:
            raise UnknownSavepointError(f"job {found.job!r} has no savepoint", fix="take one first: launch its operation", job=found.job)
        return known[-1]


def maps_of(form: RenamingForm) -> Maps:
    """Return a config's renames for changed code."""
    return Maps(dict(form.uids), {uid: dict(names) for uid, names in form.columns.items()}, form.allow_non_restored_state)


def caller(context: dg.OpExecutionContext) -> str:
    """Return the requester's name: this process's user and the Dagster run."""
    return f"{current_user()} (Dagster run {context.run_id[:8]})"


def fork_name(job: str) -> str:
    """Return the default name of a job's fork."""
    return f"{job}-what-if"


def _retention(keep: int, age: str) -> SavepointRetention:
    return SavepointRetention(keep, to_ms(age, what="age"))


def _spec_metadata(made: SpecGeneration) -> Found:
    return {
        "tidemark/generation": made.generation,
        "tidemark/wanted": made.spec.wanted,
        "tidemark/code": made.spec.code,
        "tidemark/asked_by": made.by,
    }
