"""Options of a source whose values are in environment variables."""

from __future__ import annotations

import os
from dataclasses import replace

from tidemark.errors import DefinitionError
from tidemark.graph.model.nodes import SourceNode
from tidemark.graph.model.source_specs import FormatSpec


def resolved(source: SourceNode, spec: FormatSpec) -> FormatSpec:
    """Return the spec with all of its options; it is not to be kept or shown.

    Raises:
        DefinitionError: an environment variable is not set.
    """
    if not spec.environment:
        return spec
    secrets = {option: secret(variable, f"the option {option}", source) for option, variable in spec.environment.items()}
    return replace(spec, options={**spec.options, **secrets}, environment={})


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
