"""Runs the operations that change a job's code: begin an upgrade, or continue the one under way to one of its two ends."""

from __future__ import annotations

import dagster as dg

from tidemark.assets.values.metadata_values import MetadataItem
from tidemark.control import (
    UpgradeRequest,
    UpgradeStep,
    Upgrading,
    begin_upgrade,
    code_text,
    job_code,
    promotion_of,
    require_fork_of,
    require_spec,
)
from tidemark.durations import to_ms
from tidemark.errors import DefinitionError
from tidemark.operations.savepoint_config import JobForm, PromoteForm, UpgradeForm
from tidemark.operations.savepoint_ops import SavepointOperator, caller, fork_name, maps_of


class UpgradeOperator:
    """Runs the operations on a job's code.

    Args:
        operator: has the store, the launchers, the clock, and the check of new code against stored state.
    """

    def __init__(self, operator: SavepointOperator) -> None:
        self._operator = operator

    def upgrade(self, context: dg.OpExecutionContext, form: UpgradeForm) -> dict[str, MetadataItem]:
        """Upgrade a job to new code, with rollback."""
        upgrading = self._upgrading(context)
        if form.savepoint and not form.code:
            raise DefinitionError("`savepoint` requires `code`", fix="set `code`, or launch the rewind job instead", job=form.job)
        if form.code and form.end:
            raise DefinitionError(
                "`code` and `end` exclude one another", fix=f"set `code`, or `end: {form.end}` for the upgrade under way", job=form.job
            )
        if form.code:
            new = job_code(form.code)
            request = UpgradeRequest(
                form.job,
                new.code,
                definition=new.definition,
                version=form.version,
                code_paths=tuple(form.code_paths) or None,
                folder=form.folder or None,
                variables=dict(form.variables),
                maps=maps_of(form),
                good_epochs=form.good_epochs,
                within_ms=to_ms(form.checks_within, what="checks_within", minimum=1),
                checks=tuple(form.checks),
                back_to=form.savepoint,
            )
            self._begin(context, upgrading, request, form)
        if form.end == "abort":
            upgrading.require_abort(form.job, form.why)
        elif form.end == "accept":
            upgrading.accept(form.job, form.why)
        return self._continue(context, upgrading, form.job, form)

    def promote(self, context: dg.OpExecutionContext, form: PromoteForm) -> dict[str, MetadataItem]:
        """Upgrade a job to the code of its fork: it rewinds to where the fork began, and resumes with it."""
        upgrading = self._upgrading(context)
        within_ms = to_ms(form.checks_within, what="checks_within", minimum=1)
        fork = form.fork or fork_name(form.job)
        require_fork_of(require_spec(upgrading.store, fork).spec.origin, fork, form.job)
        request = promotion_of(
            upgrading.store,
            fork,
            version=form.version,
            good_epochs=form.good_epochs,
            within_ms=within_ms,
            checks=tuple(form.checks),
        )
        self._begin(context, upgrading, request, form)
        return self._continue(context, upgrading, request.job, form)

    def _continue(
        self, context: dg.OpExecutionContext, upgrading: Upgrading, job: str, form: UpgradeForm | PromoteForm
    ) -> dict[str, MetadataItem]:
        if not form.wait:
            return _outcome(upgrading.require_step(job))
        with self._operator.observing(context, job):
            end = upgrading.resume(job, timeout_ms=to_ms(form.timeout, what="timeout", minimum=1))
        return _outcome(end)

    def _upgrading(self, context: dg.OpExecutionContext) -> Upgrading:
        found = self._operator
        return Upgrading(found.open_store(), found.launchers(), found.clock, by=caller(context), on_progress=context.log.info)

    def _begin(self, context: dg.OpExecutionContext, upgrading: Upgrading, request: UpgradeRequest, form: JobForm) -> None:
        begin_upgrade(
            upgrading.store,
            request,
            launchers=upgrading.launchers,
            by=caller(context),
            why=form.why,
            clock=self._operator.clock,
            judge=self._operator.judge,
        )


def _outcome(end: UpgradeStep) -> dict[str, MetadataItem]:
    """Return the outcome of an upgrade, or its step, as metadata.

    Raises:
        dagster.Failure: it was rolled back to the old code.
    """
    metadata: dict[str, MetadataItem] = {
        "tidemark/upgrade": end.upgrade.identity,
        "tidemark/upgrade_end" if end.ended else "tidemark/upgrade_step": end.step,
        "tidemark/code": code_text(end.upgrade.before if end.heading == "rolled-back" else end.upgrade.after),
        "tidemark/savepoint": end.upgrade.savepoint,
        "tidemark/reason": end.reason,
    }
    if end.step == "rolled-back":
        raise dg.Failure(str(end), metadata=dict(metadata), allow_retries=False)
    return metadata
