"""Finds a job by ``module:name``, as ``uvicorn`` and ``gunicorn`` find an application."""

from __future__ import annotations

import importlib
import sys

from tidemark.errors import DefinitionError, TidemarkError
from tidemark.graph.job.job import Job
from tidemark.state.encoding.redaction import redacted, without_secrets

_FIX = "name it as MODULE:JOB, such as examples.taxi.job:job, from the folder that the module is importable from"


def load_job(reference: str) -> Job:
    """Return the job that a reference names; if it names a function without arguments, the function's result.

    Raises:
        DefinitionError: no such module or name, it is not a job, or its code fails; the cause is the code's own error.
        TidemarkError: raised by the job's definition.
    """
    module_name, separator, name = reference.partition(":")
    if not (separator and module_name and name):
        raise DefinitionError(f"{reference!r} does not name a job", fix=_FIX)
    if "" not in sys.path:
        sys.path.insert(0, "")
    try:
        module = importlib.import_module(module_name)
        found = getattr(module, name, None)
        if callable(found) and not isinstance(found, Job):
            found = found()
    except TidemarkError:
        raise
    except ImportError as error:
        raise DefinitionError(f"module {module_name!r} cannot be imported: {redacted(str(error))}", fix=_FIX) from without_secrets(error)
    # A script may call sys.exit when it is imported.
    except (Exception, SystemExit) as error:  # noqa: BLE001 - raised again, without credentials
        raise DefinitionError(
            f"the code of {reference!r} fails: {redacted(f'{type(error).__name__}: {error}')}",
            fix=f"correct it; `python -c 'import {module_name}'` shows where it fails",
        ) from without_secrets(error)
    if not isinstance(found, Job):
        jobs = [key for key, value in vars(module).items() if isinstance(value, Job)]
        raise DefinitionError(
            f"{name!r} in module {module_name!r} is {'missing' if found is None else f'a {type(found).__name__}, not a job'}",
            fix=f"name one of its jobs: {', '.join(jobs) or 'there are none'}",
        )
    return found
