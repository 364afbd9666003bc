"""Config schemas of the operations on savepoints, as the launchpad shows them.

With its default config, a job that would change results is a no-op.
"""

from __future__ import annotations

from typing import Literal, TypeVar

import dagster as dg
from pydantic import Field, create_model

Form = TypeVar("Form", bound="JobForm")

_JOB_HELP = "Name of the job."
_SAVEPOINT_HELP = "Name of the savepoint; empty for the newest, except those that rewinds took."
_TIMEOUT_HELP = "How long to wait at most; the request stays in effect after that."
_GO_ON_HELP = "How long to wait at most; a later run can continue it."
_TO_THE_END_HELP = "Carry it out to the end; else only begin it, and a supervisor or the reconcile sensor continues."


class JobForm(dg.Config):
    """The config that all operations take."""

    job: str = Field(description=_JOB_HELP)
    why: str = Field(default="", description="Reason; stored with the change.")


class WaitForm(JobForm):
    """Config of operations that change how a job runs."""

    wait: bool = Field(
        default=True,
        description="Reconcile the job and wait until it runs so; else only write the request, for a supervisor or the reconcile sensor.",
    )
    timeout: str = Field(default="10 minutes", description=_TIMEOUT_HELP)


class RenamingForm(JobForm):
    """How changed code maps to stored state, which only the user can know; for operations that restore state."""

    uids: dict[str, str] = Field(default={}, description="Operators whose uid was changed: new uid by old uid.")
    columns: dict[str, dict[str, str | None]] = Field(
        default={},
        description="Keys, aggregates and columns that were renamed: by the operator's new uid, new name by old name; "
        "null for an aggregate whose state is dropped.",
    )
    allow_non_restored_state: bool = Field(default=False, description="Drop state that nothing in the code claims.")


class SavepointForm(JobForm):
    """Config of ``savepoint``."""

    name: str = Field(default="", description="Its name; empty for sp-EPOCH-TIME.")
    epoch: int | None = Field(default=None, ge=0, description="A retained epoch; the newest by default.")
    lineage: str = Field(default="", description="The epoch's lineage; empty for the newest that has it.")
    kind: Literal["manual", "periodic"] = Field(
        default="manual", description="manual: kept until it is disposed of. periodic: disposed of by retention."
    )
    labels: dict[str, str] = Field(default={}, description="Free key-value pairs.")


class DisposeForm(JobForm):
    """Config of ``dispose_savepoints``."""

    names: list[str] = Field(default=[], description="Savepoints to dispose of; empty for those that retention no longer keeps.")
    keep: int = Field(default=10, ge=0, description="Without names: how many automatic savepoints of each kind are kept.")
    age: str = Field(default="7 days", description="Without names: how long they are kept.")


class ExportForm(JobForm):
    """Config of ``export_savepoint``."""

    savepoint: str = Field(default="", description=_SAVEPOINT_HELP)
    to: str = Field(default="", description="Folder to export to; empty for _exports/JOB/SAVEPOINT in the job store.")


class RewindForm(JobForm):
    """Config of ``rewind``."""

    savepoint: str = Field(default="", description="Name of the savepoint; empty, with dry_run only, for the newest.")
    dry_run: bool = Field(default=True, description="Only report the plan, and what blocks it.")
    stop: bool = Field(default=True, description="Stop the job first, and start it again afterwards.")
    timeout: str = Field(default="10 minutes", description=_TIMEOUT_HELP)
    abort: bool = Field(
        default=False,
        description="Instead, abort an unfinished rewind; only possible while no table was reverted.",
    )


class ForkForm(RenamingForm, WaitForm):
    """Config of ``fork``."""

    savepoint: str = Field(default="", description=_SAVEPOINT_HELP)
    name: str = Field(default="", description="The fork's name; empty for JOB-what-if.")
    code: str = Field(default="", description="The changed code, MODULE:JOB or PATH.yaml; empty for the job's own.")
    version: str = Field(default="", description="A label of the changed code.")
    code_paths: list[str] = Field(default=[], description="Folders, zips and wheels that it is in; empty for the job's own.")
    folder: str = Field(default="", description="Working directory of its driver; empty for the job's own.")
    variables: dict[str, str] = Field(
        default={}, description="Parameters: environment variables for its driver, added to the job's. No secrets."
    )
    outputs: str = Field(default="", description="Folder of the fork's tables; empty for one inside the fork's own folder.")
    start: bool = Field(default=True, description="Start it at once.")


class DiffForm(JobForm):
    """Config of ``diff``."""

    other: str = Field(default="", description="The job to compare with; empty for JOB-what-if, its fork.")
    output: str = Field(default="", description="The output, by its name in both jobs; empty for every table that both have.")
    keys: list[str] = Field(default=[], description="Key columns of the rows; empty for those of windows and upserts.")
    samples: int = Field(default=10, ge=0, description="Show rows of this many keys of each output.")


class DiscardForm(JobForm):
    """Config of ``discard``."""

    fork: str = Field(default="", description="Name of the fork; there is no default, since its tables are deleted for good.")


class RescaleForm(WaitForm):
    """Config of ``rescale``."""

    parallelism: int | None = Field(default=None, ge=1, description="Shuffle partitions from the next epoch on; none for the job's own.")


class RestoreForm(RenamingForm, WaitForm):
    """Config of ``restore``."""

    savepoint: str = Field(default="", description="Name of the savepoint; there is no default, since tables are not reverted.")
    savepoint_of: str = Field(default="", description="The job whose savepoint it is; empty for the same.")
    mode: Literal["no-claim", "claim"] = Field(
        default="no-claim", description="no-claim: the savepoint stays. claim: it is disposed of once the job no longer needs it."
    )
    parallelism: int | None = Field(default=None, ge=1, description="Shuffle partitions from then on; none to leave them unchanged.")


class UpgradeForm(RenamingForm):
    """Config of ``upgrade``."""

    code: str = Field(default="", description="The new code, MODULE:JOB or PATH.yaml; empty to continue the upgrade that is under way.")
    savepoint: str = Field(
        default="",
        description="A savepoint to rewind state and tables to before the new code starts, such as one from before a bug; "
        "empty to continue where the job is.",
    )
    version: str = Field(default="", description="A label of the new code.")
    code_paths: list[str] = Field(default=[], description="Folders, zips and wheels that it is in; empty to leave them unchanged.")
    folder: str = Field(default="", description="Working directory of its driver; empty to leave it unchanged.")
    variables: dict[str, str] = Field(default={}, description="Additional environment variables for its driver. No secrets.")
    good_epochs: int = Field(default=3, ge=1, description="Epochs that the new code must commit.")
    checks_within: str = Field(default="5 minutes", description="How long it has for that, and for its checks.")
    checks: list[str] = Field(default=[], description="Names of checks that have to pass in that time.")
    end: Literal["", "abort", "accept"] = Field(
        default="", description="Of the upgrade that is under way: abort: roll back. accept: keep the new code, whatever its checks said."
    )
    wait: bool = Field(default=True, description=_TO_THE_END_HELP)
    timeout: str = Field(default="30 minutes", description=_GO_ON_HELP)


class PromoteForm(JobForm):
    """Config of ``promote``."""

    fork: str = Field(default="", description="Name of the fork; empty for JOB-what-if.")
    version: str = Field(default="", description="A label of its code; empty for the fork's version.")
    good_epochs: int = Field(default=3, ge=1, description="Epochs that its code must commit.")
    checks_within: str = Field(default="5 minutes", description="How long it has for that, and for its checks.")
    checks: list[str] = Field(default=[], description="Names of checks that have to pass in that time.")
    wait: bool = Field(default=True, description=_TO_THE_END_HELP)
    timeout: str = Field(default="30 minutes", description=_GO_ON_HELP)


class MaintenanceForm(JobForm):
    """Config of ``maintenance``."""

    keep: int = Field(default=10, ge=0, description="How many automatic savepoints of each kind are kept.")
    age: str = Field(default="7 days", description="How long they are kept.")
    sweep: bool = Field(default=True, description="Delete unreferenced state files if the job does not run.")
    vacuum: bool = Field(default=True, description="Delete old files of the tables, except those that savepoints need.")


def job_form(form: type[Form], job: str | None) -> type[Form]:
    """Return a config schema with the job's name, where it is known."""
    name = Field(description=_JOB_HELP) if job is None else Field(default=job, description=_JOB_HELP)
    return create_model(form.__name__, __base__=form, job=(str, name))
