"""What both components have: translation, checks, partitions, sensors, operations."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Annotated, ClassVar, Literal, Self

import dagster as dg
from dagster.components.resolved.errors import ResolutionException
from dagster.components.utils.translation import TranslationFn, TranslationFnResolver
from dagster_shared.yaml_utils.source_position import SourcePositionTree
from pydantic import BaseModel, ConfigDict, Field, PrivateAttr, ValidationError, field_validator, model_validator

from tidemark.assets.streams.job_streams import StreamData
from tidemark.assets.streams.translator import TidemarkTranslator
from tidemark.components.checks import ResolvedChecks
from tidemark.components.partitions import ResolvedPartitions
from tidemark.components.yaml_places import YamlPlaces, mistake
from tidemark.control import JobCode, JobSpec
from tidemark.durations import to_ms
from tidemark.errors import DefinitionError, DurationError
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


def _as_texts(given: object) -> object:
    """Return settings as they stand in YAML: Dagster, which fills in templates, makes numbers of texts such as "100"."""
    if not isinstance(given, Mapping):
        return given
    return {name: str(value).lower() if isinstance(value, bool) else str(value) for name, value in given.items()}


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

    @field_validator("conf", "variables", mode="before")
    @classmethod
    def _are_texts(cls, given: object) -> object:
        return _as_texts(given)

    @field_validator("trigger")
    @classmethod
    def _is_a_duration(cls, trigger: str) -> str:
        try:
            to_ms(trigger, what="trigger")
        except DurationError as error:
            raise ValueError(f"{error.what}. Fix: {error.fix}") from None
        return trigger

    def spec(self, code: JobCode, job: Job) -> JobSpec:
        """Return the spec of a job.

        Args:
            code: where the driver finds the job.
            job: the job.
        """
        return JobSpec(
            job.name,
            code.code,
            definition=code.definition,
            version=self.version,
            trigger_ms=to_ms(self.trigger, what="trigger"),
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
    continuous: bool = Field(
        default=False,
        description="Whether the job's driver is a process outside Dagster, which runs until it is stopped; "
        "else a schedule reads its input.",
    )
    driver: DriverSettings | None = Field(default=None, description="How the driver of a continuous job runs.")
    partitions: ResolvedPartitions = None
    savepoints: bool = Field(
        default=True, description="Have the operations on savepoints and code of a continuous job, with their schedules."
    )
    single_jobs: bool = Field(
        default=False, description="Also have a Dagster job for each operation on a continuous job, such as <job>_start."
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

    PLAIN_FIELDS: ClassVar[tuple[str, ...]] = (
        "store",
        "continuous",
        "driver",
        "savepoints",
        "single_jobs",
        "source_assets",
        "alerts",
        "default_status",
        "cron",
        "spark_config",
    )
    """The fields whose values are data, and no objects of Dagster's."""

    @field_validator("spark_config", mode="before")
    @classmethod
    def _are_texts(cls, given: object) -> object:
        return _as_texts(given)

    @model_validator(mode="after")
    def _has_fields_of_one_kind_of_jobs(self) -> Self:
        """Refuse fields of the other kind of jobs, which would have no effect."""
        of_continuous = {
            "driver": self.driver is not None,
            "partitions": self.partitions is not None,
            "savepoints": not self.savepoints,
            "single_jobs": self.single_jobs,
        }
        of_drained = {"cron": self.cron is not None, "spark_config": self.spark_config is not None}
        wrong = [name for name, given in (of_drained if self.continuous else of_continuous).items() if given]
        if wrong:
            other = "false" if self.continuous else "true"
            belong = "belongs" if len(wrong) == 1 else "belong"
            raise ValueError(
                f"{' and '.join(wrong)} {belong} to jobs with continuous: {other}. Fix: leave that out, or set continuous: {other}"
            )
        return self

    @classmethod
    def load(cls, attributes: BaseModel | None, context: dg.ComponentLoadContext) -> Self:
        """Load the component from its YAML, and remember where its fields are.

        Raises:
            DefinitionError: a field is wrong, with its place.
        """
        tree = context.resolution_context.source_position_tree
        try:
            made = super().load(attributes, context)
        except ValidationError as error:
            raise mistake(error, tree, cls) from None
        except ResolutionException:
            # It has the line, but not always the field, and a long trace.
            given = (
                attributes.model_dump(include=set(cls.PLAIN_FIELDS), by_alias=True, exclude_unset=True) if attributes is not None else {}
            )
            if "{{" not in str(given):
                cls.of_fields(given, tree)
            raise
        made._places = YamlPlaces(tree)  # noqa: SLF001  # of its own class
        return made

    @classmethod
    def of_fields(cls, fields: Mapping[str, object], tree: SourcePositionTree | None) -> Self:
        """Return the component of plain fields, without templates.

        Args:
            fields: values by the names that they have in YAML.
            tree: where they are in the YAML, if it is known.

        Raises:
            DefinitionError: a field is wrong, with its place.
        """
        try:
            made = cls.model_validate(fields)
        except ValidationError as error:
            raise mistake(error, tree, cls) from None
        made._places = YamlPlaces(tree)  # noqa: SLF001  # of its own class
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

    def job_definitions(self, job: Job, code: JobCode) -> dg.Definitions:
        """Return the definitions of a job.

        Args:
            job: the job, or a described one.
            code: where the driver of a continuous job finds it.

        Raises:
            DefinitionError: no store is known, or what is set does not fit the job.
        """
        if not self.continuous:
            return self._drained_definitions(job)
        driver = self.driver or DriverSettings()
        return build_job_definitions(
            job,
            store=self.store_of(job),
            spec=lambda _, of: driver.spec(code, of),
            partitions=None if self.partitions is None else lambda _: self.partitions,
            checks=lambda _: self.checks,
            translator=self.translator,
            sources=self.source_assets,
            own_sensors=True,
            single_jobs=self.single_jobs,
            savepoints=self.savepoints,
            alert_key=self.alerts,
            default_status=self.sensor_status,
        )

    def _drained_definitions(self, job: Job) -> dg.Definitions:
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
