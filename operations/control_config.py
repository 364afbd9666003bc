"""The forms of the operations on jobs, as the launchpad shows them: what can be set, what it is for, and what it is by default."""

from __future__ import annotations

from typing import Literal, TypeVar

import dagster as dg
from pydantic import Field, create_model

Form = TypeVar("Form", bound="RequestForm")

_JOB_HELP = "Name of the job."


class RequestForm(dg.Config):
    """What all operations take."""

    job: str = Field(description=_JOB_HELP)
    why: str = Field(default="", description="What for; kept with the change, and shown by `tidemark history JOB --changes`.")
    wait: bool = Field(
        default=True,
        description="See to it, and wait until it is so; else only write the wish down, for a supervisor or the reconcile sensor.",
    )
    timeout: str = Field(default="10 minutes", description="How long to wait at most; what was asked for stands all the same.")


class ResumeForm(RequestForm):
    """Of ``resume``, and what ``start`` has of it."""

    resubmit: bool = Field(
        default=False,
        description="Take the settings of this code location (trigger, Spark settings, code) for a job that was submitted before, too.",
    )


class StartForm(ResumeForm):
    """Of ``start``."""

    missing_epochs: Literal["refuse", "republish", "accept"] = Field(
        default="refuse",
        description="Where an output's place no longer holds what was published to it. refuse: the job does not start. "
        "republish: publish that again. accept: continue without it.",
    )


class SuspendForm(RequestForm):
    """Of ``suspend``, and what ``stop`` has of it."""

    how: Literal["finish", "drain", "now"] = Field(
        default="finish",
        description="finish: after the current epoch. drain: read all there is, close all windows, end for good. now: at once.",
    )


class StopForm(SuspendForm):
    """Of ``stop``."""

    savepoint: str | None = Field(
        default=None,
        description="Name of a savepoint that is taken of where the job ended; an empty text for sp-EPOCH-TIME, none takes none.",
    )


def form_for(form: type[Form], job: str | None, *, wait: bool = True) -> type[Form]:
    """Return a form in which the job's name is filled in, where it is known, and that waits or does not by default."""
    waits = form.model_fields["wait"].description
    name = Field(description=_JOB_HELP) if job is None else Field(default=job, description=_JOB_HELP)
    return create_model(form.__name__, __base__=form, job=(str, name), wait=(bool, Field(default=wait, description=waits)))
