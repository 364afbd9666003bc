"""What both components have: translation, checks, partitions, sensors, operations."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Literal, Self

import dagster as dg
from dagster.components.utils.translation import TranslationFn, TranslationFnResolver
from pydantic import BaseModel, ConfigDict, Field, PrivateAttr

from tidemark.assets.streams.job_streams import StreamData
from tidemark.assets.streams.translator import TidemarkTranslator
from tidemark.components.checks import ResolvedChecks
from tidemark.components.yaml_places import YamlPlaces
from tidemark.control import JobSpec
from tidemark.durations import to_ms
from tidemark.errors import DefinitionError
from tidemark.graph import Job
from tidemark.operations.job_definitions import build_job_definitions

ResolvedTranslation = Annotated[
    TranslationFn[StreamData] | None,
    TranslationFnResolver[StreamData](lambda data: {"data": data}),
    Field(
        description="Changes of the assets: key, key_prefix, group_name, description, tags, owners, metadata, kinds, automation_condition. "
        "Templates may use `data`, the stream (kind, name and job), and `spec`, its asset by default."
    ),
]


class DriverSettings(dg.Model, dg.Resolvable):
    """How the driver of a continuous job runs: the spec that the operation ``start`` submits."""

    version: str = Field(default="", description="A label of the code; changing it restarts the driver.")
    trigger: str = Field(default="10 seconds", description="An epoch at most this often.")
    parallelism: int | None = Field(default=None, description="Shuffle partitions; the job's own by default.", ge=1)
    launcher: Literal["local", "spark-submit"] = Field(default="local", description="What starts the driver.")
    master: str = Field(default="local[*]", description="Spark's master.")
    conf: dict[str, str] = Field(default_factory=dict, description="Spark settings.")
    code_paths: list[str] = Field(default_factory=list, description="Folders, zips and wheels with the code, besides installed packages.")
    folder: str | None = Field(default=None, description="The driver's working directory.")
    variables: dict[str, str] = Field(default_factory=dict, description="Environment variables that the job's module reads; no secrets.")
    adaptive_intake: bool = Field(default=False, description="Whether the intake of an epoch follows the duration of the last ones.")
    standby: bool = Field(default=False, description="Whether a process is kept ready that takes over when the driver dies.")

    def spec(self, code: str, job: Job) -> JobSpec:
        """Return the spec of a job.

        Args:
            code: where the driver finds the job.
            job: the job.

        Raises:
            DurationError: the trigger cannot be read.
        """
        return JobSpec(
            job.name,
            code,
            version=self.version,
            trigger_ms=to_ms(self.trigger, what="driver.trigger"),
            parallelism=self.parallelism,
            launcher=self.launcher,
            master=self.master,
            conf=self.conf,
            code_paths=tuple(self.code_paths),
            folder=self.folder,
            variables=self.variables,
            adaptive_intake=self.adaptive_intake,
            standby=self.standby,
        )


class YamlTranslator(TidemarkTranslator):
    """The default translation, changed as YAML says.

    Args:
        change: returns the spec of a stream, from the default one.
    """

    def __init__(self, change: Callable[[dg.AssetSpec, StreamData], dg.AssetSpec]) -> None:
        self._change = change

    def get_asset_spec(self, data: StreamData) -> dg.AssetSpec:
        """Return the asset of one stream."""
        return self._change(super().get_asset_spec(data), data)


class JobSettings(dg.Component, dg.Model, dg.Resolvable):
    """The fields of both components, all but the job itself."""

    model_config = ConfigDict(extra="forbid", arbitrary_types_allowed=True)

    store: str | None = Field(
        default=None, description="Folder or bucket of the job stores; the job's own by default.", examples=["{{ env.TIDEMARK_STORE }}"]
    )
    translation: ResolvedTranslation = None
    checks: ResolvedChecks = Field(default_factory=list)
    source_assets: bool = Field(
        default=True, description="Have the job's sources as assets; false where another component has a source of the same key."
    )
    alerts: str | None = Field(default=None, description="Key of the resource that alerts go through; none are sent by default.")
    default_status: Literal["RUNNING", "STOPPED"] | None = Field(
        default=None,
        description="Whether sensors and schedules run as soon as they are deployed. By default sensors of continuous jobs do, and "
        "others do not.",
    )
    cron: str | None = Field(
        default=None, description="When a job that is not continuous reads its input; every quarter of an hour by default."
    )
    spark_config: dict[str, str] | None = Field(default=None, description="Spark settings of the runs of a job that is not continuous.")

    _places: YamlPlaces = PrivateAttr(default_factory=YamlPlaces)

    @classmethod
    def load(cls, attributes: BaseModel | None, context: dg.ComponentLoadContext) -> Self:
        """Load the component from its YAML, and remember where its fields are."""
        made = super().load(attributes, context)
        made._places = YamlPlaces(context)  # noqa: SLF001  # of its own class
        return made

    def place(self, *path: str) -> str:
        """Return the file and line of a field of the YAML, by the names that lead to it."""
        return self._places.of(*path)

    @property
    def translator(self) -> TidemarkTranslator | None:
        """The translator that ``translation`` describes, None for the default one."""
        return None if self.translation is None else YamlTranslator(self.translation)

    @property
    def sensor_status(self) -> dg.DefaultSensorStatus | None:
        """The status of sensors; that of schedules follows it."""
        return None if self.default_status is None else dg.DefaultSensorStatus(self.default_status)

    def drained_definitions(self, job: Job) -> dg.Definitions:
        """Return the definitions of a job that runs read to the end of its input.

        Raises:
            DefinitionError: no store is known, or the checks do not fit the job.
        """
        return build_job_definitions(
            job,
            store=self.store_of(job),
            continuous=False,
            checks=lambda _: self.checks,
            translator=self.translator,
            sources=self.source_assets,
            cron=self.cron,
            spark_config=self.spark_config,
            alert_key=self.alerts,
            default_status=self.sensor_status,
        )

    def store_of(self, job: Job) -> str:
        """Return where the job's state is.

        Raises:
            DefinitionError: it is not known.
        """
        store = self.store or job.store
        if store is None:
            raise DefinitionError("no job store is known", fix="set `attributes: store:`, or Job(store=...)", job=job.name)
        return store
