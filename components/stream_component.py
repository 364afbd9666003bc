"""``TidemarkStreamComponent``: a streaming job whose sources, windows and sinks are YAML, without Python."""

from __future__ import annotations

from typing import ClassVar, Final

import dagster as dg
from pydantic import Field

import tidemark as tm
from tidemark.components.scaffolding import StreamScaffolder
from tidemark.components.settings import JobSettings
from tidemark.components.sink_models import OutputModel
from tidemark.components.source_models import SourceModel
from tidemark.components.stream_job import StreamGraph
from tidemark.components.stream_models import StreamModel
from tidemark.control import JobCode
from tidemark.graph import declared_at

JOB_FIELDS: Final = ("name", "sources", "streams", "outputs", "description", "owners", "tags", "parallelism", "retained_epochs")
"""The fields that the job is made of; the others say where its state is, and what Dagster has of it."""


@dg.scaffold_with(StreamScaffolder)
class TidemarkStreamComponent(JobSettings):
    """A streaming job in YAML, as assets, checks, sensors, and either a schedule that reads its input or the operations on its driver.

    Expressions are SQL over one row, as the job API takes them; they are read when definitions load, and run by Spark. Nothing else of
    the YAML is executed. A mistake is an error that names the file, the line and the field.
    """

    PLAIN_FIELDS: ClassVar[tuple[str, ...]] = (*JobSettings.PLAIN_FIELDS, *JOB_FIELDS)

    name: str = Field(description="The job's name; a folder of the store and the group of the assets.", examples=["rides"])
    sources: dict[str, SourceModel] = Field(description="Sources by name.")
    streams: dict[str, StreamModel] = Field(default_factory=dict, description="Streams made of sources and other streams, by name.")
    outputs: dict[str, OutputModel] = Field(description="Outputs by name: streams and side outputs bound to sinks.")
    description: str | None = Field(default=None, description="What the job is for, in Markdown.")
    owners: list[str] = Field(default_factory=list, description="Users or teams, such as team:data.")
    tags: dict[str, str] = Field(default_factory=dict, description="Free key-value pairs.")
    parallelism: int | None = Field(default=None, description="Number of shuffle partitions.", ge=1)
    retained_epochs: int = Field(default=100, description="How many of the newest epochs can be restored.", ge=1)

    def job(self) -> tm.Job:
        """Return the job. Starts no JVM.

        Raises:
            DefinitionError: or one of its kinds, with the place in YAML.
        """
        outputs = StreamGraph(self.sources, self.streams, self.outputs, self._places).bound_outputs()
        with declared_at(self.place("name")):
            return tm.Job(
                self.name,
                outputs,
                store=self.store,
                parallelism=self.parallelism,
                retained_epochs=self.retained_epochs,
                description=self.description,
                owners=self.owners,
                tags=self.tags,
            )

    def definition(self) -> str:
        """Return what the job is made of, as JSON, from which drivers make it; values of the environment are filled in."""
        return self.model_dump_json(include=set(JOB_FIELDS), by_alias=True, exclude_defaults=True)

    def build_defs(self, context: dg.ComponentLoadContext) -> dg.Definitions:
        """Return the definitions."""
        del context
        job = self.job()
        with declared_at(self.place()):
            return self.job_definitions(job, JobCode(f"{self._places.file}:{job.name}", self.definition()))
