"""Forms of changes that take a while, and the operations that wait for them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Final

from tidemark.control.client.job_client import JobClient
from tidemark.control.client.waiting import Goal, Waiting, shortfall
from tidemark.control.model.spec import SpecGeneration
from tidemark.control.model.view import JobView
from tidemark.control.view.view_line import view_line
from tidemark.durations import to_ms
from tidemark.errors import NotReachedError
from tidemark.web.api.operations import Report, Work
from tidemark.web.api.routes import PREFIX, Accepted, Call
from tidemark.web.api.schemas import Value

TEXT_AT_MOST: Final = 2_000

Why = Annotated[str, Value("The reason; stored with the change.", longest=TEXT_AT_MOST, example="maintenance")]
Wait = Annotated[
    bool, Value("Reconcile the job and wait, in the background, as the command does; without it a supervisor carries the request out.")
]
Timeout = Annotated[str, Value("How long the operation waits, such as '10 minutes'; the request stays in effect.", longest=100)]
Name = Annotated[str, Value("A name.", pattern=r"[A-Za-z0-9][A-Za-z0-9_.-]{0,99}", example="before")]
Duration = Annotated[str, Value("A duration, such as '5 minutes'.", longest=100, example="5 minutes")]


@dataclass(frozen=True)
class WhyForm:
    """A change, and its reason."""

    why: Why = ""


@dataclass(frozen=True)
class WaitForm(WhyForm):
    """A change of a job, and how to wait for it."""

    wait: Wait = True
    timeout: Timeout = "10 minutes"


def job_client(call: Call) -> JobClient:
    """Return the client that changes the call's job in the caller's name."""
    return JobClient(call.service.store, call.caller.author, call.service.clock)


def begin(call: Call, action: str, work: Work, *, generation: int | None = None, job: str = "") -> Accepted:
    """Begin an operation, and return where it can be watched.

    Args:
        call: the request.
        action: what it does, in one word.
        work: does it.
        generation: of the job's spec, if that was changed.
        job: the job that it works on; the call's by default.

    Raises:
        ServerBusyError: too many operations run.
    """
    name = job or call.job
    made = call.service.operations.begin(name, action, call.caller.author, work)
    return Accepted(name, action, f"{PREFIX}/jobs/{name}/operations/{made.id}", generation, made.id)


def change_and_wait(
    call: Call,
    form: WaitForm,
    action: str,
    goal: Goal,
    change: Callable[[], SpecGeneration],
    *,
    then: Callable[[Report], dict[str, object]] = lambda _: {},
) -> Accepted:
    """Change a job's spec, and begin the operation that reconciles the job until it has reached a goal.

    Args:
        call: the request.
        form: whether and how long to wait.
        action: what is done, in one word.
        goal: what to wait for.
        change: changes the spec, once there is room for the operation.
        then: what the operation does after that; returns parts of its result.

    Raises:
        TidemarkError: as ``change``; or too many operations run, and nothing was changed.
    """
    timeout_ms = to_ms(form.timeout, what="timeout", minimum=1)
    if form.wait:
        call.service.operations.require_room(call.job)
    made = change()
    job = made.spec.job
    if not form.wait:
        return Accepted(job, action, f"{PREFIX}/jobs/{job}", made.generation)
    service = call.service

    def work(report: Report) -> object:
        view = Waiting(service.store, service.launchers, service.clock).until(
            job, goal, generation=made.generation, timeout_ms=timeout_ms, on_progress=lambda seen: report(view_line(seen))
        )
        require_reached(view, goal)
        return {**reached(view), **then(report)}

    return begin(call, action, work, generation=made.generation, job=job)


def require_reached(view: JobView, goal: Goal) -> None:
    """Raise if a job failed, or does not run although it should.

    Raises:
        NotReachedError: it did not reach the goal.
    """
    said = shortfall(view, goal)
    if said is not None:
        raise NotReachedError(said, fix=view.advice or "see the job's error, and its log", job=view.job)


def reached(view: JobView) -> dict[str, object]:
    """Return the state that a job has reached, as part of an operation's result."""
    return {"state": view.state, "generation": view.generation, "epoch": view.epoch}
