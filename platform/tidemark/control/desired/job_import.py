"""Finds a job by ``module:name``, as ``uvicorn`` and ``gunicorn`` find an application, or in a file of YAML."""

from __future__ import annotations

import importlib
import json
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

from tidemark.errors import DefinitionError, TidemarkError
from tidemark.state.encoding.redaction import redacted, without_secrets

if TYPE_CHECKING:
    from tidemark.control.model.spec import JobSpec
    from tidemark.graph.job.job import Job

_FIX = "name it as MODULE:JOB, such as examples.taxi.job:job, from the folder that the module is importable from, or as PATH.yaml"
_JOBS_IN_YAML: Final = "tidemark.components.stream_definition"
"""Imported by name, since it is above this package, and needs Dagster, which reads the templates in YAML."""


@dataclass(frozen=True)
class JobCode:
    """Where a job is: ``module:name``, or ``path.yaml:name`` with what the file says of the job, as data (JSON)."""

    code: str
    definition: str | None = None


def is_job_file(reference: str) -> bool:
    """Return whether a reference names a file of YAML, and not a module."""
    return reference.partition(":")[0].endswith((".yaml", ".yml"))


def job_code(reference: str) -> JobCode:
    """Return what a spec holds of a reference: of ``path.yaml`` or ``path.yaml:name`` also what the file says of the job now.

    Raises:
        DefinitionError: the file cannot be read, or has no such job.
    """
    if not is_job_file(reference):
        return JobCode(reference)
    path, _, name = reference.partition(":")
    found: tuple[str, str] = _of_yaml("definition_in_file")(path, name)
    return JobCode(f"{path}:{found[0]}", found[1])


def with_definition(spec: JobSpec) -> JobSpec:
    """Return a spec of a job in YAML with what its file says now, unless it holds that; other specs unchanged.

    Raises:
        DefinitionError: the file cannot be read, or has no such job.
    """
    if spec.definition is not None or not is_job_file(spec.code):
        return spec
    found = job_code(spec.code)
    return replace(spec, code=found.code, definition=found.definition)


def definition_fields(reference: str, definition: str) -> Mapping[str, Any]:
    """Return what a spec holds of a job in YAML, by field.

    Args:
        reference: ``path.yaml:name``, for the error.
        definition: the text in the spec.

    Raises:
        DefinitionError: it is no JSON object.
    """
    problem = "it is no object"
    try:
        found: object = json.loads(definition)
    # A text that is nested too deeply is a RecursionError.
    except (ValueError, RecursionError) as error:
        found, problem = None, str(error)
    if not isinstance(found, dict):
        raise DefinitionError(
            f"what the spec holds of the job in YAML is not the JSON that was read from its file: {problem}",
            fix=f"submit the file again: `tidemark submit {reference}`; in Python give what job_code({reference!r}) returns",
            place=reference,
        )
    return found


def load_job(reference: str, definition: str | None = None) -> Job:
    """Return the job that a reference names; if it names a function without arguments, the function's result.

    Args:
        reference: ``module:name``, or ``path.yaml`` of a job in YAML, with ``:name`` if the file has several.
        definition: what the file said of the job when it was submitted; the file is then not read.

    Raises:
        DefinitionError: no such module, file or name, it is not a job, or its code fails; the cause is the code's own error. Or what was
            submitted of a job in YAML cannot be read.
        TidemarkError: raised by the job's definition.
    """
    module_name, _, name = reference.partition(":")
    if definition is not None:
        made: Job = _of_yaml("job_of_definition")(reference, definition_fields(reference, definition))
        return made
    if is_job_file(reference):
        read: Job = _of_yaml("job_in_file")(module_name, name)
        return read
    _require_module(reference)
    # Commands that start a job read references only.
    from tidemark.graph.job.job import Job

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


def _require_module(reference: str) -> None:
    module, separator, name = reference.partition(":")
    if not (separator and module and name):
        raise DefinitionError(f"{reference!r} does not name a job", fix=_FIX)
    if module.endswith(".py"):
        # Such a file is no module, whatever there is.
        named = module.removesuffix(".py").removeprefix("./").replace("/", ".")
        raise DefinitionError(f"{reference!r} names a file, not a module", fix=f"write {named}:{name}")


def _of_yaml(function: str) -> Callable[..., Any]:
    """Return a function of the module that reads jobs in YAML."""
    try:
        found: Callable[..., Any] = getattr(importlib.import_module(_JOBS_IN_YAML), function)
    except ImportError as error:
        raise DefinitionError(
            f"jobs in YAML are read with Dagster, which cannot be imported: {error}", fix="run pip install -e '.[dagster]' in the checkout"
        ) from error
    return found
