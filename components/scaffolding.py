"""What ``dg scaffold defs`` writes."""

from __future__ import annotations

from typing import Final

import dagster as dg
from pydantic import BaseModel, Field


class JobParams(BaseModel):
    """The options of ``dg scaffold defs tidemark.TidemarkJobComponent``."""

    job: str = Field(description="The job's code, MODULE:JOB.")
    store: str | None = Field(default=None, description="Folder or bucket of the job stores.")
    continuous: bool = Field(
        default=True, description="Whether the job runs outside Dagster until it is stopped; else a schedule reads its input."
    )


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


class StreamParams(BaseModel):
    """The options of ``dg scaffold defs tidemark.TidemarkStreamComponent``."""

    name: str | None = Field(default=None, description="The job's name; that of the folder by default.")
    store: str = Field(default="jobs", description="Folder or bucket of the job stores.")
    continuous: bool = Field(
        default=False, description="Whether the job runs outside Dagster until it is stopped; else a schedule reads its input."
    )


class StreamScaffolder(dg.Scaffolder[StreamParams]):
    """Writes the YAML of a job that counts and sums the rows of files by hour, to be changed."""

    @classmethod
    def get_scaffold_params(cls) -> type[StreamParams]:
        """Return the options."""
        return StreamParams

    def scaffold(self, request: dg.ScaffoldRequest[StreamParams]) -> None:
        """Write ``defs.yaml``."""
        name = request.params.name or request.target_path.name
        continuous = {"continuous": True} if request.params.continuous else {}
        dg.scaffold_component(request, {"name": name, "store": request.params.store, **continuous, **EXAMPLE})


EXAMPLE: Final = {
    "sources": {
        "rides": {
            "files": {"path": "landing", "format": "json", "schema": "zone INT, fare DOUBLE, at TIMESTAMP"},
            "event_time": {"timestamp": "at", "bound": "5 minutes"},
            "malformed_to": "malformed",
        }
    },
    "streams": {
        "hourly": {
            "input": "rides",
            "filter": "fare >= 0",
            "key_by": ["zone"],
            "window": {"tumbling": "1 hour"},
            "allowed_lateness": "10 minutes",
            "late_to": "late",
            "aggregates": {"rides": {"count": "*"}, "fares": {"sum": "fare"}},
        }
    },
    "outputs": {
        "hourly": {"input": "hourly", "delta": {"path": "warehouse/hourly"}},
        "late": {"input": "late", "delta": {"path": "warehouse/late"}},
        "malformed": {"input": "malformed", "delta": {"path": "warehouse/malformed"}},
    },
}
"""A job that counts and sums the rows of files by hour."""
