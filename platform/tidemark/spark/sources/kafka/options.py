"""Options of a source whose values are in environment variables."""

from __future__ import annotations

import os
from dataclasses import replace
from typing import Final

from tidemark.errors import DefinitionError
from tidemark.graph.model.nodes import SourceNode
from tidemark.graph.model.source_specs import FormatSpec

REGISTRY_CREDENTIALS: Final = "the credentials of the registry"


def resolved(source: SourceNode, spec: FormatSpec) -> FormatSpec:
    """Return the spec with all of its options; it is not to be kept or shown.

    Raises:
        DefinitionError: an environment variable is not set.
    """
    if not spec.environment:
        return spec
    secrets = {option: secret(variable, f"the option {option}", source) for option, variable in spec.environment.items()}
    return replace(spec, options={**spec.options, **secrets}, environment={})


def require_credentials(source: SourceNode, spec: FormatSpec) -> None:
    """Check before the first epoch that the credentials of a schema registry are there.

    Raises:
        DefinitionError: their environment variable is not set.
    """
    if spec.decoding is not None and spec.decoding.registry_env is not None:
        secret(spec.decoding.registry_env, REGISTRY_CREDENTIALS, source)


def secret(variable: str, what: str, source: SourceNode) -> str:
    """Return the value of an environment variable.

    Raises:
        DefinitionError: it is not set.
    """
    value = os.environ.get(variable)
    if not value:
        raise DefinitionError(
            f"the environment variable {variable}, which holds {what} of source {source.name!r}, is not set",
            fix=f"set {variable} where the driver of the job runs",
            uid=source.name,
            place=source.place,
        )
    return value
