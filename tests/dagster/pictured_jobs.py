"""Two continuous jobs over one source, of which the pictures in the docs are taken."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import tidemark as tm
from tests.dagster.fake_engine import make_job
from tidemark.graph.api.streams import Stream

FOLDER = "TIDEMARK_PICTURED"
"""Environment variable with the folder of store and tables."""

NAMES = ("fares", "rides")


def pictured_job(folder: Path, name: str) -> tm.Job:
    """Return a job that says of its main output and its columns what they are."""
    job = make_job(folder, name, store=str(folder / "store"))
    hourly = tm.delta(
        Stream(job.outputs["hourly"].node),
        str(folder / name / "hourly"),
        description="Fares by zone and hour, for the finance team.",
        columns={"trips": "How many trips began in the zone in that hour.", "fares": "Sum of the fares, in dollars, without tips."},
    )
    return replace(job, outputs={**job.outputs, "hourly": hourly})


fares, rides = (pictured_job(Path(os.environ.get(FOLDER, "nowhere")), name) for name in NAMES)
