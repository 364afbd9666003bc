"""The code location of the pictures in the docs. Its sensors stand still: the test lets them tick."""

from __future__ import annotations

import os
from pathlib import Path

import dagster as dg

from tests.dagster.pictured_jobs import FOLDER, NAMES
from tidemark.operations import build_job_definitions


@dg.definitions
def defs() -> dg.Definitions:
    return build_job_definitions(
        *(f"tests.dagster.pictured_jobs:{name}" for name in NAMES),
        continuous=True,
        store=str(Path(os.environ[FOLDER]) / "store"),
        alert_key=None,
        default_status=dg.DefaultSensorStatus.STOPPED,
    )
