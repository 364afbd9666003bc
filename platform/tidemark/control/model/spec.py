"""A job's desired state: its code, how it runs, its restart policy. Written by users and tools, never by a driver.

A spec is immutable. Each change is a new numbered generation (``spec_store``); the newest one counts.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from tidemark.control.model.autoscaler_settings import AutoscalerSettings
from tidemark.savepoints.model.restore import Restore
from tidemark.state.encoding.codec import added_field
from tidemark.state.log.progress import MissingEpochs

DesiredState = Literal["running", "suspended"]
StopMode = Literal["finish", "drain", "now"]
"""How a driver ends when its job is to be suspended: after the current epoch; after all available input, with the watermark at the end
of time, so that every window closes; at once."""

RestartKind = Literal["exponential", "fixed", "rate", "none"]
LauncherName = Literal["local", "spark-submit"]


@dataclass(frozen=True)
class RestartPolicy:
    """When a failed driver is restarted; times are milliseconds.

    ``exponential``: at once for a first failure and after a healthy period, else after ``initial_ms``, each time in a row ``factor``
    times longer up to ``longest_ms``, plus or minus a share ``jitter``.
    ``fixed``: after ``delay_ms``, up to ``attempts`` times in a row. ``rate``: after ``delay_ms``, as long as there were no more than
    ``failures_per`` failures in ``per_ms``. ``none``: never. An attempt that committed an epoch, or ran for ``reset_after_ms``,
    resets the count.
    With every kind, ``same_epoch_failures`` failures in a row at one epoch fail the job; 0 turns that off.
    """

    kind: RestartKind = "exponential"
    initial_ms: int = 1_000
    longest_ms: int = 300_000
    factor: float = 2.0
    jitter: float = 0.1
    reset_after_ms: int = 3_600_000
    delay_ms: int = 10_000
    attempts: int = 3
    failures_per: int = 3
    per_ms: int = 300_000
    same_epoch_failures: int = 3


@dataclass(frozen=True)
class AlertThresholds:
    """Thresholds from which a job is reported; None takes the default for the job.

    Lags are milliseconds, late rows are a share of the rows, restarts are counted over ten minutes. By default a lag warns at the
    greater of five times the bound on out-of-orderness and 5 minutes, and is an error at three times that. Memory is a share of its limit,
    ``gc`` the share of a minute in which a JVM stands still for collections of garbage.
    """

    lag_warn_ms: int | None = None
    lag_error_ms: int | None = None
    late_warn: float = 0.001
    late_error: float = 0.01
    restarts_warn: int = 3
    savepoint_age_ms: int | None = None
    memory_warn: float = added_field(0.9)
    memory_error: float = added_field(0.97)
    gc_warn: float = added_field(0.2)
    gc_error: float = added_field(0.5)


@dataclass(frozen=True)
class MissingEpochsRequest:
    """What a driver may do about epochs that an output no longer holds, while the job's newest epoch is the one named here.

    What was done is recorded as an epoch, so a request applies once.
    """

    how: MissingEpochs
    lineage: str
    epoch: int

    def after(self, lineage: str, epoch: int) -> MissingEpochs | None:
        """Return what a driver that resumes after an epoch may do, None for another epoch than the one named here."""
        return self.how if (lineage, epoch) == (self.lineage, self.epoch) else None


@dataclass(frozen=True)
class ForkOrigin:
    """The origin of a fork: the restore, and lineage and epoch of its savepoint, whose name may be used again later.

    An earlier release did not record it; the epoch of its forks is -1.
    """

    restore: Restore
    lineage: str = ""
    epoch: int = -1

    @property
    def job(self) -> str:
        """The job that was forked."""
        return self.restore.job


@dataclass(frozen=True)
class JobSpec:
    """A job's desired state.

    Args:
        job: the job's name; its folder in the job store.
        code: ``module:name`` of the job, or of a function that returns it; ``path.yaml:name`` of a job in YAML.
        version: a label of the code; changing it restarts the driver.
        wanted: whether a driver should run.
        stop: how a running driver ends when ``wanted`` is suspended.
        restarts: each increase requests one restart, also of a failed job.
        trigger_ms: an epoch at most this often.
        parallelism: shuffle partitions; None leaves it to the job. A running driver applies it at its next epoch.
        launcher: the launcher of its driver.
        master: Spark's master.
        conf: Spark settings.
        code_paths: folders, zips and wheels with the code, besides installed packages.
        folder: the driver's working directory; None is that of the launching process.
        variables: environment variables that the job's module reads, such as the roots of its sinks. No secrets: a driver inherits
            the environment of the launching process.
        restart: the restart policy after failures.
        adaptive_intake: adapt the intake of an epoch to the duration of the last epochs.
        standby: keep a process ready that takes the job over as soon as its driver has died; only for local drivers.
        alerts: thresholds of alerts.
        start_timeout_ms: a driver without a heartbeat this long after its launch has failed.
        hang_after_ms: an epoch that takes this long hangs; None is ten triggers, and at least 5 minutes.
        restore: the savepoint that the job restores from; its identity makes it happen once, however many drivers start.
        outputs_root: for a fork: the folder of its tables, apart from those that the code names.
        forked: for a fork: its origin. Its ``restore`` may have changed since.
        missing_epochs: what the start does about epochs that an output no longer holds; None fails.
        intake: the share of its usual bounds that an epoch may read of each source; None is all of them. A running driver applies it at
            its next epoch; with adaptive intake it has no effect.
        autoscaler: whether parallelism and intake follow the load, and how far.
        for_rewind: the job is suspended only for a rewind, and the process that completes the rewind starts it again.
        definition: of a job in YAML what the file said of it when the spec was written, as JSON; drivers read this, and not the file.
    """

    job: str
    code: str
    version: str = ""
    wanted: DesiredState = "running"
    stop: StopMode = "finish"
    restarts: int = 0
    trigger_ms: int = 10_000
    parallelism: int | None = None
    launcher: LauncherName = "local"
    master: str = "local[*]"
    conf: Mapping[str, str] = field(default_factory=dict)
    code_paths: tuple[str, ...] = ()
    folder: str | None = None
    variables: Mapping[str, str] = field(default_factory=dict)
    restart: RestartPolicy = RestartPolicy()
    adaptive_intake: bool = False
    alerts: AlertThresholds = AlertThresholds()
    start_timeout_ms: int = 300_000
    hang_after_ms: int | None = None
    restore: Restore | None = added_field(None)  # noqa: RUF009 - it returns a field
    outputs_root: str | None = added_field(None)
    for_rewind: bool = added_field(False)
    forked: ForkOrigin | None = added_field(None)  # noqa: RUF009 - it returns a field
    missing_epochs: MissingEpochsRequest | None = added_field(None)  # noqa: RUF009 - it returns a field
    standby: bool = added_field(False)
    intake: float | None = added_field(None)
    autoscaler: AutoscalerSettings = added_field(AutoscalerSettings())  # noqa: RUF009 - it returns a field
    definition: str | None = added_field(None)

    @property
    def origin(self) -> ForkOrigin | None:
        """The origin of a fork, None for other jobs."""
        if self.outputs_root is None or self.forked is not None:
            return self.forked
        return ForkOrigin(self.restore) if self.restore is not None and self.restore.job else None

    @property
    def app_name(self) -> str:
        """The name of its driver's Spark application."""
        return f"tidemark {self.job}"

    @property
    def longest_epoch_ms(self) -> int:
        """The duration from which an epoch counts as hung, in milliseconds."""
        return self.hang_after_ms if self.hang_after_ms is not None else max(10 * self.trigger_ms, 300_000)

    def requires_restart_from(self, other: JobSpec) -> bool:
        """Return whether a driver that was started for the other spec must be restarted for this one.

        Missing epochs are handled at the start, so dropping that request needs no restart.
        """
        asks = self.missing_epochs is not None and self.missing_epochs != other.missing_epochs
        return asks or self.driver_settings() != other.driver_settings()

    def driver_settings(self) -> tuple[object, ...]:
        """Return the settings that a driver reads from the spec once, when it starts."""
        return (
            self.code,
            self.version,
            self.restarts,
            self.trigger_ms,
            self.launcher,
            self.master,
            self.conf,
            self.code_paths,
            self.folder,
            self.variables,
            self.adaptive_intake,
            self.restore,
            self.outputs_root,
            self.standby,
            self.definition,
        )

    def has_other_code_than(self, other: JobSpec) -> bool:
        """Return whether the specs differ in code, which makes a restart an upgrade."""
        return (self.code, self.version, self.code_paths, self.definition) != (
            other.code,
            other.version,
            other.code_paths,
            other.definition,
        )


@dataclass(frozen=True)
class SpecGeneration:
    """One version of a job's spec; generations count from 1. ``at`` is in milliseconds, ``by`` and ``why`` are its author and reason."""

    generation: int
    at: int
    by: str
    why: str
    spec: JobSpec


def describe_request(made: SpecGeneration) -> str:
    """Return the reason and the author of a generation as text."""
    return f"{made.why} ({made.by})" if made.why else f"asked by {made.by}"
