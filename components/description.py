"""The description of a job in a file, as a component keeps it."""

from __future__ import annotations

import json
from pathlib import Path

from tidemark.assets.streams.job_code import REFRESH
from tidemark.control import job_document_apart, read_job_document
from tidemark.errors import DescriptionError
from tidemark.graph import DescribedJob


def write_description(code: str, path: Path) -> None:
    """Describe a job, in a process of its own, and write that to a file.

    Args:
        code: ``module:job``.
        path: the file; it is replaced.

    Raises:
        DescriptionError: the job cannot be loaded, or the process that does so fails.
    """
    document = job_document_apart(code)
    read_job_document(document)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"{document}\n", encoding="utf-8")


def read_description(path: Path) -> DescribedJob:
    """Return the job that a file describes.

    Raises:
        DescriptionError: the file is damaged, or of another release.
    """
    try:
        document = path.read_bytes().decode()
        json.loads(document)
    except ValueError as error:
        raise DescriptionError(f"the description of the job is damaged: {error}", fix=REFRESH) from None
    return read_job_document(document)
