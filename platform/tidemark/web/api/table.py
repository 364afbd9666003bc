"""All routes of the API."""

from __future__ import annotations

from typing import Final

from tidemark.web.api.autoscaling import AUTOSCALING
from tidemark.web.api.code_changes import CODE_CHANGES
from tidemark.web.api.control_changes import CONTROL_CHANGES
from tidemark.web.api.reads import READS
from tidemark.web.api.result_reads import RESULT_READS
from tidemark.web.api.routes import ApiRoute
from tidemark.web.api.savepoint_changes import SAVEPOINT_CHANGES
from tidemark.web.api.silence_changes import SILENCE_CHANGES

ROUTES: Final[tuple[ApiRoute, ...]] = (
    *READS,
    *RESULT_READS,
    *CONTROL_CHANGES,
    *SAVEPOINT_CHANGES,
    *CODE_CHANGES,
    *AUTOSCALING,
    *SILENCE_CHANGES,
)
