"""Links assets to the page of their job, as ``tidemark ui`` serves it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final
from urllib.parse import quote, urlsplit

import dagster as dg

from tidemark.assets.definitions.bound_job import JOB_KEY
from tidemark.errors import DefinitionError

PAGE_KEY: Final = "tidemark/page"


def page_links(ui_url: str | None) -> Callable[[dg.AssetSpec], dg.AssetSpec]:
    """Return what adds the link to the spec of an output's asset; other specs, or without an address, stay as they are.

    Args:
        ui_url: the address of ``tidemark ui`` as browsers reach it, such as ``https://jobs.example.com``.

    Raises:
        DefinitionError: it is no address of a web page, or holds a user or a query, which links would show.
    """
    if ui_url is None:
        return lambda spec: spec
    parts = urlsplit(ui_url)
    if parts.scheme not in {"http", "https"} or not parts.hostname or parts.username is not None or parts.query or parts.fragment:
        raise DefinitionError(
            "ui_url is not the plain address of a web page", fix="give that of `tidemark ui`, such as ui_url='https://jobs.example.com'"
        )

    def link(spec: dg.AssetSpec) -> dg.AssetSpec:
        job = spec.metadata.get(JOB_KEY)
        if not isinstance(job, str):
            return spec
        return spec.merge_attributes(metadata={PAGE_KEY: dg.MetadataValue.url(f"{ui_url.rstrip('/')}/#{quote(job)}")})

    return link
