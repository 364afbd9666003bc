"""The description of a job as a document: made from its code, in a process of its own if wanted, and read back without it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import Final

from tidemark.control.desired.job_import import load_job
from tidemark.errors import DescriptionError, TidemarkError
from tidemark.graph.job.described_job import DescribedJob
from tidemark.graph.job.job_description import describe_job, described_job
from tidemark.state.encoding.redaction import redacted

_PROGRAM: Final = "tidemark.control.desired.job_document"
_SECONDS: Final = 300.0


def job_document(reference: str) -> str:
    """Return the description of the job that a reference names, as one line of JSON without credentials. Starts no JVM.

    Raises:
        TidemarkError: the job cannot be loaded.
    """
    return json.dumps(_without_credentials(describe_job(load_job(reference), reference)), ensure_ascii=False)


def job_document_apart(reference: str) -> str:
    """Return the same from a process of its own, which sees what this one can import: this one does not import the job.

    Raises:
        DescriptionError: the job cannot be loaded, or the process cannot be started or takes longer than five minutes.
    """
    command = [sys.executable, "-m", _PROGRAM, reference]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(each for each in sys.path if each)}
    fix = f"correct it until `tidemark graph {reference} --json` prints it"
    try:
        done = subprocess.run(
            command, env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=_SECONDS, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise DescriptionError(f"the job {reference} cannot be described: {error}", fix=fix) from error
    if done.returncode:
        said = redacted(done.stderr.strip().rpartition("\n")[2]) or f"exit code {done.returncode}"
        raise DescriptionError(f"the job {reference} cannot be described: {said}", fix=fix)
    # A module may print when it is imported; the document is the last line.
    return done.stdout.strip().rpartition("\n")[2]


def read_job_document(text: str) -> DescribedJob:
    """Return the job that a document describes; its code is not imported.

    Raises:
        DescriptionError: it is no document of this release.
    """
    try:
        return described_job(json.loads(text))
    except json.JSONDecodeError as error:
        raise DescriptionError(
            f"this is no description of a job: {error}", fix="write it with `tidemark graph MODULE:JOB --json`, the whole line"
        ) from error


def _without_credentials(value: object) -> object:
    """Return a value with the credentials of its addresses hidden; other texts, which are SQL or the user's words, stay as they are."""
    if isinstance(value, str):
        return redacted(value) if "://" in value else value
    if isinstance(value, dict):
        return {name: _without_credentials(each) for name, each in value.items()}
    return [_without_credentials(each) for each in value] if isinstance(value, list | tuple) else value


def main(reference: str) -> int:
    """Print the description of a job; returns the exit code."""
    try:
        document = job_document(reference)
    except TidemarkError as error:
        sys.stderr.write(f"{' '.join(str(error).split())}\n")
        return 1
    sys.stdout.write(f"{document}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
