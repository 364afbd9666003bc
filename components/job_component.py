"""``TidemarkJobComponent``: a streaming job in YAML, whose graph is read from a description and not from its code."""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar

import dagster as dg
from dagster.components import DefsStateConfig, DefsStateConfigArgs, ResolvedDefsStateConfig
from pydantic import Field, field_validator

from tidemark.assets.definitions.broken_code import broken_check, broken_spec
from tidemark.assets.streams.job_code import REFRESH
from tidemark.components.description import read_description, write_description
from tidemark.components.scaffolding import JobScaffolder
from tidemark.components.settings import JobSettings
from tidemark.control import JobCode
from tidemark.errors import DescriptionError
from tidemark.graph import declared_at
from tidemark.state import redacted


@dg.scaffold_with(JobScaffolder)
class TidemarkJobComponent(JobSettings, dg.StateBackedComponent):
    """A streaming job written in Python, as assets, checks, sensors, operations and schedules.

    The job's graph is the component's state: ``dg utils refresh-defs-state`` writes it, ``dagster dev`` does so when it starts. Code
    locations load from it; only runs, drivers and that command import the job, and only runs and drivers start a JVM.
    """

    PLAIN_FIELDS: ClassVar[tuple[str, ...]] = ("job", *JobSettings.PLAIN_FIELDS)

    job: str = Field(description="The job's code, MODULE:JOB, as runs import it.", examples=["rides.job:job"])
    continuous: bool = Field(
        default=True,
        description="Whether the job's driver is a process outside Dagster, which runs until it is stopped; "
        "else a schedule reads its input.",
    )
    defs_state: ResolvedDefsStateConfig = Field(default_factory=DefsStateConfigArgs.local_filesystem)

    @field_validator("job")
    @classmethod
    def _names_a_job(cls, job: str) -> str:
        """Check the reference to the job, which becomes an argument of a command."""
        module, _, name = job.partition(":")
        if not all(part.isidentifier() for part in (*module.split("."), name)):
            raise ValueError(f"{job!r} names no job. Fix: write MODULE:JOB, such as rides.job:job")
        return job

    @property
    def defs_state_config(self) -> DefsStateConfig:
        """Where the description is kept, by the job's code."""
        return DefsStateConfig.from_args(self.defs_state, default_key=f"TidemarkJobComponent[{self.job}]")

    def write_state_to_path(self, state_path: Path) -> None:
        """Describe the job, in a process of its own.

        Raises:
            DescriptionError: the job cannot be loaded, or the process that does so fails.
        """
        write_description(self.job, state_path)

    def build_defs(self, context: dg.ComponentLoadContext) -> dg.Definitions:
        """Return the definitions; of a job that ``dagster dev`` cannot describe an asset that says why."""
        try:
            return super().build_defs(context)
        except DescriptionError as error:
            return self._broken(redacted(str(error)), "cannot be described", fix=REFRESH)

    def build_defs_from_state(self, context: dg.ComponentLoadContext, state_path: Path | None) -> dg.Definitions:
        """Return the definitions of the job that was described; of one that never was an asset that says so."""
        del context
        if state_path is None:
            return self._broken(f"The job was never described. Fix: {REFRESH}.", "has no description", fix=REFRESH)
        job = read_description(state_path)
        with declared_at(self.place()):
            return self.job_definitions(job, JobCode(self.job))

    def _broken(self, error: str, reason: str, *, fix: str) -> dg.Definitions:
        return dg.Definitions(assets=[broken_spec(self.job, error, reason=reason)], asset_checks=[broken_check(self.job, fix=fix)])
