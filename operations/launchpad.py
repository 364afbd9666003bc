"""Dagster jobs that run operations, whose config the launchpad shows with its defaults and help."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import dagster as dg

from tidemark.assets.definitions.start_operations import OPERATE, STORE_STEM
from tidemark.assets.streams.translator import group_of

_JOB_HELP: Final = "Name of the streaming job; a fork's to operate that."
_DO_HELP: Final = "The operation, one of these, with its settings; `{}` for none."


@dataclass(frozen=True)
class Operation:
    """An operation on a streaming job.

    Args:
        verb: its name.
        form: its config schema, with a field ``job``.
        help: its description, with ``{job}``.
        carry_out: runs it; called with the op's context and config.
        chooses: fields of its config that name savepoints which exist.
    """

    verb: str
    form: type[dg.Config]
    help: str
    carry_out: Callable[[dg.OpExecutionContext, Any], None]
    chooses: tuple[str, ...] = ()


def single_job(operation: Operation, job: str | None) -> dg.JobDefinition:
    """Return a Dagster job ``<job>_<verb>`` for one operation; without a job ``tidemark_<verb>``, whose config asks for one.

    Args:
        operation: the operation.
        job: the streaming job's name.
    """
    form = operation.form

    def operate(context: dg.OpExecutionContext, config: dg.Config) -> None:
        operation.carry_out(context, config)

    # Dagster reads the config schema from the annotation, and the schema is made for this job.
    operate.__annotations__ = {"context": dg.OpExecutionContext, "config": form, "return": None}
    text = _help(operation, job)
    op = dg.op(name=f"{operation.verb}_{_stem(job)}", description=text, out=dg.Out(dg.Nothing))(operate)
    return _launchpad(f"{_stem(job)}_{operation.verb}", op, text, job, form(job=job).model_dump() if job is not None else None)


def operate_job(operations: Sequence[Operation], job: str | None, *, savepoints: Sequence[str] = ()) -> dg.JobDefinition:
    """Return the Dagster job ``<job>_operate``: one op that runs the operation that its config chooses under ``do``.

    Without a job it is ``tidemark_operate``, whose config asks for one. Its default config runs the first operation.

    Args:
        operations: the operations.
        job: the streaming job's name.
        savepoints: names of the job's savepoints when the code location was loaded, newest first, for the help.
    """
    known = {operation.verb: operation for operation in operations}
    choices = {verb: dg.Field(_fields(each, savepoints), description=_help(each, job)) for verb, each in known.items()}
    first: dict[str, object] = {operations[0].verb: {}}
    schema = {
        "job": dg.Field(str, description=_JOB_HELP) if job is None else dg.Field(str, default_value=job, description=_JOB_HELP),
        "do": dg.Field(dg.Selector(choices), description=_DO_HELP, default_value=first),  # type: ignore[no-untyped-call]
    }

    def operate(context: dg.OpExecutionContext) -> None:
        ((verb, settings),) = context.op_config["do"].items()
        name = str(context.op_config["job"])
        # Runs of all operations have one name, so the list of runs tells them apart by this.
        context.instance.add_run_tags(context.run_id, {"tidemark/job": name, "tidemark/operation": verb})
        known[verb].carry_out(context, known[verb].form(job=name, **settings))

    operate.__annotations__ = {"context": dg.OpExecutionContext, "return": None}
    text = _description(operations, job, savepoints)
    op = dg.op(name=f"{OPERATE}_{_stem(job)}", description=text, out=dg.Out(dg.Nothing), config_schema=schema)(operate)
    return _launchpad(f"{_stem(job)}_{OPERATE}", op, text, job, {"job": job, "do": first} if job is not None else None)


def _launchpad(name: str, op: dg.OpDefinition, description: str, job: str | None, config: Mapping[str, object] | None) -> dg.JobDefinition:
    return dg.GraphDefinition(name=name, node_defs=[op]).to_job(
        description=description,
        executor_def=dg.in_process_executor,
        tags={"tidemark/job": job} if job is not None else None,
        # All defaults are written out, so that the launchpad shows them.
        config={"ops": {op.name: {"config": config}}} if config is not None else None,
    )


def _stem(job: str | None) -> str:
    return group_of(job) if job is not None else STORE_STEM


def _help(operation: Operation, job: str | None) -> str:
    return operation.help.format(job=f"`{job}`" if job is not None else "a job")


def _fields(operation: Operation, savepoints: Sequence[str]) -> dict[str, dg.Field]:
    """Return the fields of an operation's config but for the job; those that choose a savepoint name the ones there are."""
    fields = {name: field for name, field in operation.form.to_fields_dict().items() if name != "job"}
    for name in operation.chooses if savepoints else ():
        field = fields[name]
        given: dict[str, Any] = {"default_value": field.default_value} if field.default_provided else {}
        fields[name] = dg.Field(
            field.config_type, is_required=field.is_required, description=f"{field.description} Known: {', '.join(savepoints)}.", **given
        )
    return fields


def _description(operations: Sequence[Operation], job: str | None, savepoints: Sequence[str]) -> str:
    """Return the help of all operations, as Markdown."""
    subject = f"the streaming job `{job}`" if job is not None else "a streaming job"
    example = "`do: {stop: {}}`; the launchpad completes names and shows the settings of each."
    lines = [
        f"Operates {subject}. Choose one operation under `do`, such as {example}",
        "",
        "| `do` | |",
        "|---|---|",
        *(f"| `{operation.verb}` | {_help(operation, job)} |" for operation in operations),
    ]
    if savepoints:
        lines += ["", f"Savepoints when this was loaded, newest first: {', '.join(f'`{name}`' for name in savepoints)}."]
    return "\n".join(lines)
