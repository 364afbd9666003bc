"""Routes that read results: whether an input is visible in them, and how the tables of two jobs differ."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Final

from tidemark.control.client.completion import Completion, Input, InputWatch
from tidemark.control.forks.forks import diff_output
from tidemark.savepoints.delta.row_diff import RowDiff
from tidemark.web.api.reads import JOB
from tidemark.web.api.routes import ApiRoute, Call, route
from tidemark.web.api.schemas import Value


@dataclass(frozen=True, kw_only=True)
class InputForm:
    """An input, and where it has to be visible."""

    input: Annotated[str, Value("epoch:N, file:PATH or kafka:TOPIC:PARTITION:OFFSET.", longest=2_000, example="epoch:42")]
    output: Annotated[str, Value("An output that has to show it; empty is all.", longest=100)] = ""
    source: Annotated[str, Value("The source that has to read it; empty is each that reads its topic or folder.", longest=100)] = ""


@dataclass(frozen=True)
class Visibility:
    """Whether an input is visible in a job's outputs, as `tidemark wait` decides it; ``missing`` is what it waits for."""

    visible: bool
    missing: str
    completion: Completion


@dataclass(frozen=True, kw_only=True)
class DiffForm:
    """An output that two jobs write."""

    output: Annotated[str, Value("The output, by its name in both jobs.", longest=100, example="hourly")]
    samples: Annotated[int, Value("Show rows of this many keys.", minimum=0, maximum=1000)] = 10


def get_visibility(call: Call, form: InputForm) -> Visibility:
    """Show whether the results of an input are visible in a job's outputs."""
    call.service.require(call.job)
    watch = InputWatch(call.service.store, call.job, source=form.source, output=form.output, clock=call.service.clock)
    found = watch.look(Input.parse(form.input))
    return Visibility(found.is_visible, found.missing, found)


def get_row_difference(call: Call, form: DiffForm) -> object:
    """Compare an output's rows in two jobs' tables."""
    other = call.path["other"]
    call.caller.require("operator", other)
    for job in (call.job, other):
        call.service.require(job)
    return diff_output(call.service.store, call.job, other, form.output, samples=form.samples).document()


RESULT_READS: Final[tuple[ApiRoute, ...]] = (
    route("GET", f"{JOB}/visible", get_visibility, InputForm, role="viewer", answer=Visibility, group="results"),
    route("GET", f"{JOB}/diff/{{other}}", get_row_difference, DiffForm, role="operator", answer=RowDiff, group="results"),
)
