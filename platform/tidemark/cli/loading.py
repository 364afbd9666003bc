"""Finds a job by ``module:name``, as ``uvicorn`` and ``gunicorn`` find an application."""

from __future__ import annotations

import importlib
import sys

from tidemark.errors import DefinitionError
from tidemark.graph.job import Job

_FIX = "name it as MODULE:JOB, such as examples.taxi.job:job, from the folder that the module is importable from"


def load_job(reference: str) -> Job:
    """Return the job that a reference names; a function without arguments is called for it.

    Raises:
        DefinitionError: no such module or name, or it is not a job.
    """
    module_name, separator, name = reference.partition(":")
    if not (separator and module_name and name):
        raise DefinitionError(f"{reference!r} does not name a job", fix=_FIX)
    if "" not in sys.path:
        sys.path.insert(0, "")
    try:
        module = importlib.import_module(module_name)
    except ImportError as error:
        raise DefinitionError(f"module {module_name!r} cannot be imported: {error}", fix=_FIX) from error
    found = getattr(module, name, None)
    if callable(found) and not isinstance(found, Job):
        found = found()
    if not isinstance(found, Job):
        jobs = [key for key, value in vars(module).items() if isinstance(value, Job)]
        raise DefinitionError(
            f"{name!r} in module {module_name!r} is {'missing' if found is None else f'a {type(found).__name__}, not a job'}",
            fix=f"name one of its jobs: {', '.join(jobs) or 'there are none'}",
        )
    return found
