"""Config schemas of the operations on jobs, as the launchpad shows them: fields, descriptions and defaults."""

from __future__ import annotations

from typing import Literal, TypeVar

import dagster as dg
from pydantic import Field, create_model

Form = TypeVar("Form", bound="RequestForm")

_JOB_HELP = "Name of the job."


class RequestForm(dg.Config):
    """The config that all operations take."""

    job: str = Field(description=_JOB_HELP)
    why: str = Field(default="", description="Reason; stored with the change and shown by `tidemark history JOB --changes`.")
    wait: bool = Field(
        default=True,
        description="Reconcile the job and wait until it is done; else only write the request, for a supervisor or the reconcile sensor.",
    )
    timeout: str = Field(default="10 minutes", description="How long to wait at most; the request stays in effect after that.")


class ResumeForm(RequestForm):
    """Config of ``resume``, and base of that of ``start``."""

    resubmit: bool = Field(
        default=False,
        description="Apply this code location's settings (trigger, Spark settings, code) also to a job that was submitted before.",
    )


class StartForm(ResumeForm):
    """Config of ``start``."""

    missing_epochs: Literal["refuse", "republish", "accept"] = Field(
        default="refuse",
        description="If an output no longer holds epochs that were published to it. refuse: the job does not start. "
        "republish: publish them again. accept: continue without them.",
    )


class SuspendForm(RequestForm):
    """Config of ``suspend``, and base of that of ``stop``."""

    how: Literal["finish", "drain", "now"] = Field(
        default="finish",
        description="finish: after the current epoch. drain: read all input, close all windows, end for good. now: at once.",
    )


class StopForm(SuspendForm):
    """Config of ``stop``."""

    savepoint: str | None = Field(
        default=None,
        description="Name of the savepoint to take after the job has ended; an empty text for sp-EPOCH-TIME, none takes none.",
    )


def form_for(form: type[Form], job: str | None, *, wait: bool = True) -> type[Form]:
    """Return a config schema with the job's name, where it is known, and the default of ``wait``."""
    waits = form.model_fields["wait"].description
    name = Field(description=_JOB_HELP) if job is None else Field(default=job, description=_JOB_HELP)
    return create_model(form.__name__, __base__=form, job=(str, name), wait=(bool, Field(default=wait, description=waits)))
