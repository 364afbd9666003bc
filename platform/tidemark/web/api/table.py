"""All routes of the API."""

from __future__ import annotations

from typing import Final

from tidemark.web.api.reads import READS
from tidemark.web.api.routes import ApiRoute

ROUTES: Final[tuple[ApiRoute, ...]] = (*READS,)
