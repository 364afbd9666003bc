"""The forms of the operations on savepoints, as the launchpad shows them. What would change results by being launched as it is does not."""

from __future__ import annotations

from typing import Literal, TypeVar

import dagster as dg
from pydantic import Field, create_model

Form = TypeVar("Form", bound="JobForm")

_JOB_HELP = "Name of the job."
_SAVEPOINT_HELP = "Name of the savepoint; empty for the newest, but for those that rewinds took."
_TIMEOUT_HELP = "How long to wait at most; what was asked for stands all the same."
_GO_ON_HELP = "How long to wait at most; it can be continued afterwards."
_TO_THE_END_HELP = "Go on to the end; else only begin it, for a supervisor or the reconcile sensor to go on with."


class JobForm(dg.Config):
    """What all operations take."""

    job: str = Field(description=_JOB_HELP)
    why: str = Field(default="", description="What for; kept with the change.")


class WaitForm(JobForm):
    """What operations take that want a job to run otherwise."""

    wait: bool = Field(
        default=True,
        description="See to it, and wait until the job runs so; else only write it down, for a supervisor or the reconcile sensor.",
    )
    timeout: str = Field(default="10 minutes", description=_TIMEOUT_HELP)


class RenamingForm(JobForm):
    """What only the author knows of changed code, for operations by which it takes stored state over."""

    uids: dict[str, str] = Field(default={}, description="Operators that have another uid now: the new one by the old one.")
    columns: dict[str, dict[str, str | None]] = Field(
        default={},
        description="Keys, aggregates and columns that have another name now: by the operator's new uid, the new name by the old one; "
        "null for an aggregate whose state is left behind.",
    )
    allow_non_restored_state: bool = Field(default=False, description="Leave behind what belongs to nothing in the code.")


class SavepointForm(JobForm):
    """Of ``savepoint``."""

    name: str = Field(default="", description="Its name; empty for sp-EPOCH-TIME.")
    epoch: int | None = Field(default=None, ge=0, description="A retained epoch; the newest by default.")
    lineage: str = Field(default="", description="Of the epoch; empty for the newest that has it.")
    kind: Literal["manual", "periodic"] = Field(
        default="manual", description="manual: it stays until it is disposed of. periodic: retention expires it."
    )
    labels: dict[str, str] = Field(default={}, description="Free key-value pairs.")


class DisposeForm(JobForm):
    """Of ``dispose_savepoints``."""

    names: list[str] = Field(default=[], description="Savepoints to dispose of; empty for those that retention expires.")
    keep: int = Field(default=10, ge=0, description="Without names: so many of each kind of those taken automatically are kept.")
    age: str = Field(default="7 days", description="Without names: for so long they are kept.")


class ExportForm(JobForm):
    """Of ``export_savepoint``."""

    savepoint: str = Field(default="", description=_SAVEPOINT_HELP)
    to: str = Field(default="", description="Folder to export to; empty for _exports/JOB/SAVEPOINT in the job store.")


class RewindForm(JobForm):
    """Of ``rewind``."""

    savepoint: str = Field(default="", description="Name of the savepoint; empty, with dry_run only, for the newest.")
    dry_run: bool = Field(default=True, description="Only say what would be done, and what blocks it.")
    stop: bool = Field(default=True, description="Stop the job first, and start it again afterwards.")
    timeout: str = Field(default="10 minutes", description=_TIMEOUT_HELP)
    abort: bool = Field(
        default=False,
        description="Instead, abort the rewind that was begun and is not done; only as long as no table was reverted.",
    )


class ForkForm(RenamingForm, WaitForm):
    """Of ``fork``."""

    savepoint: str = Field(default="", description=_SAVEPOINT_HELP)
    name: str = Field(default="", description="The fork's name; empty for JOB-what-if.")
    code: str = Field(default="", description="The changed code, MODULE:JOB; empty for the job's own.")
    version: str = Field(default="", description="A label of the changed code.")
    code_paths: list[str] = Field(default=[], description="Folders, zips and wheels that it is in; empty for the job's own.")
    folder: str = Field(default="", description="Working directory of its driver; empty for the job's own.")
    variables: dict[str, str] = Field(default={}, description="Other parameters: variables of its driver, besides the job's. No secrets.")
    outputs: str = Field(default="", description="Folder of the fork's tables; empty for one inside the fork's own folder.")
    start: bool = Field(default=True, description="Start it at once.")


class DiffForm(JobForm):
    """Of ``diff``."""

    other: str = Field(default="", description="The job to compare with; empty for JOB-what-if, its fork.")
    output: str = Field(default="", description="The output, by its name in both jobs; empty for every table that both have.")
    keys: list[str] = Field(default=[], description="Columns that rows are known by; empty for those that windows and upserts tell.")
    samples: int = Field(default=10, ge=0, description="Of how many keys to show rows, of each output.")


class DiscardForm(JobForm):
    """Of ``discard``."""

    fork: str = Field(default="", description="Name of the fork; there is no default, since its tables are deleted for good.")


class RescaleForm(WaitForm):
    """Of ``rescale``."""

    parallelism: int | None = Field(default=None, ge=1, description="Shuffle partitions from the next epoch on; none for the job's own.")


class RestoreForm(RenamingForm, WaitForm):
    """Of ``restore``."""

    savepoint: str = Field(default="", description="Name of the savepoint; there is no default, since tables stay as they are.")
    savepoint_of: str = Field(default="", description="The job whose savepoint it is; empty for the same.")
    mode: Literal["no-claim", "claim"] = Field(
        default="no-claim", description="no-claim: the savepoint stays. claim: it is disposed of once the job is past it."
    )
    parallelism: int | None = Field(default=None, ge=1, description="Shuffle partitions from then on; none to leave them as they are.")


class UpgradeForm(RenamingForm):
    """Of ``upgrade``."""

    code: str = Field(default="", description="The new code, MODULE:JOB; empty to continue the upgrade that is under way.")
    savepoint: str = Field(
        default="",
        description="A savepoint that state and tables are rewound to before the new code starts, such as one from before a bug; "
        "empty to go on where the job is.",
    )
    version: str = Field(default="", description="A label of the new code.")
    code_paths: list[str] = Field(default=[], description="Folders, zips and wheels that it is in; empty to leave them as they are.")
    folder: str = Field(default="", description="Working directory of its driver; empty to leave it as it is.")
    variables: dict[str, str] = Field(default={}, description="Variables of its driver, besides those there are. No secrets.")
    good_epochs: int = Field(default=3, ge=1, description="So many epochs the new code has to commit.")
    checks_within: str = Field(default="5 minutes", description="How long it has for that, and for its checks.")
    checks: list[str] = Field(default=[], description="Names of checks that have to pass in that time.")
    end: Literal["", "abort", "accept"] = Field(
        default="", description="Of the upgrade that is under way: abort: go back. accept: the new code stays, whatever it showed."
    )
    wait: bool = Field(default=True, description=_TO_THE_END_HELP)
    timeout: str = Field(default="30 minutes", description=_GO_ON_HELP)


class PromoteForm(JobForm):
    """Of ``promote``."""

    fork: str = Field(default="", description="Name of the fork; empty for JOB-what-if.")
    version: str = Field(default="", description="A label of its code; empty for the one that the fork was given.")
    good_epochs: int = Field(default=3, ge=1, description="So many epochs its code has to commit.")
    checks_within: str = Field(default="5 minutes", description="How long it has for that, and for its checks.")
    checks: list[str] = Field(default=[], description="Names of checks that have to pass in that time.")
    wait: bool = Field(default=True, description=_TO_THE_END_HELP)
    timeout: str = Field(default="30 minutes", description=_GO_ON_HELP)


class MaintenanceForm(JobForm):
    """Of ``maintenance``."""

    keep: int = Field(default=10, ge=0, description="So many savepoints of each kind of those taken automatically are kept.")
    age: str = Field(default="7 days", description="For so long they are kept.")
    sweep: bool = Field(default=True, description="Delete state files that nothing needs, where the job does not run.")
    vacuum: bool = Field(default=True, description="Delete old files of the tables, but for what savepoints need.")


def job_form(form: type[Form], job: str | None) -> type[Form]:
    """Return a form in which the job's name is filled in, where it is known."""
    name = Field(description=_JOB_HELP) if job is None else Field(default=job, description=_JOB_HELP)
    return create_model(form.__name__, __base__=form, job=(str, name))
