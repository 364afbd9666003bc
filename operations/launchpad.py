"""A Dagster job of one operation, whose config the launchpad shows with its defaults."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import dagster as dg

from tidemark.assets.streams.translator import group_of


def launchpad_job(
    verb: str, job: str | None, *, help_: str, form: type[dg.Config], carry_out: Callable[[dg.OpExecutionContext, Any], None]
) -> dg.JobDefinition:
    """Return a Dagster job ``<job>_<verb>``; without a job ``tidemark_<verb>``, whose config asks for one.

    Args:
        verb: the operation.
        job: the streaming job's name.
        help_: its description, with ``{job}``.
        form: its config schema, with a field ``job``.
        carry_out: runs it; called with the op's context and config.
    """
    stem = group_of(job) if job is not None else "tidemark"
    description = help_.format(job=f"`{job}`" if job is not None else "a job")

    def operate(context: dg.OpExecutionContext, config: dg.Config) -> None:
        carry_out(context, config)

    # Dagster reads the config schema from the annotation, and the schema is made for this job.
    operate.__annotations__ = {"context": dg.OpExecutionContext, "config": form, "return": None}
    operation = dg.op(name=f"{verb}_{stem}", description=description, out=dg.Out(dg.Nothing))(operate)
    return dg.GraphDefinition(name=f"{stem}_{verb}", node_defs=[operation]).to_job(
        description=description,
        executor_def=dg.in_process_executor,
        tags={"tidemark/job": job} if job is not None else None,
        # All defaults are written out, so that the launchpad shows them.
        config={"ops": {operation.name: {"config": form(job=job).model_dump()}}} if job is not None else None,
    )
