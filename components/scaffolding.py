"""What ``dg scaffold defs`` writes."""

from __future__ import annotations

import dagster as dg
from pydantic import BaseModel, Field


class JobParams(BaseModel):
    """The options of ``dg scaffold defs tidemark.TidemarkJobComponent``."""

    job: str = Field(description="The job's code, MODULE:JOB.")
    store: str | None = Field(default=None, description="Folder or bucket of the job stores.")
    continuous: bool = Field(default=True, description="Whether the job runs until it is stopped, outside Dagster.")


class JobScaffolder(dg.Scaffolder[JobParams]):
    """Writes the YAML of a job."""

    @classmethod
    def get_scaffold_params(cls) -> type[JobParams]:
        """Return the options."""
        return JobParams

    def scaffold(self, request: dg.ScaffoldRequest[JobParams]) -> None:
        """Write ``defs.yaml``."""
        given = request.params
        store = {} if given.store is None else {"store": given.store}
        dg.scaffold_component(request, {"job": given.job, **store, "continuous": given.continuous})
