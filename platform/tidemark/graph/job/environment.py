"""The environment variables that a job's places need where its driver runs: connection strings, passwords and other secrets."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tidemark.errors import DefinitionError
from tidemark.graph.job.described_job import DescribedJob
from tidemark.graph.model.connector_spec import ConnectorSpec
from tidemark.graph.model.nodes import SourceNode, StatefulNode
from tidemark.graph.model.postgres_changes_spec import PostgresChangesSpec
from tidemark.graph.model.source_specs import FormatSpec
from tidemark.graph.operators.registry import kind_of

if TYPE_CHECKING:
    from tidemark.graph.job.job import Job


@dataclass(frozen=True)
class NeededVariable:
    """An environment variable that a source, operator or output reads; its value is not here.

    ``holds`` says what it holds, and for which of them; ``uid`` is the name of that, ``place`` the user's file and line.
    """

    name: str
    holds: str
    uid: str | None
    place: str

    def unset(self, job: str) -> DefinitionError:
        """Return the error where it is not set."""
        return DefinitionError(
            f"the environment variable {self.name}, which holds {self.holds}, is not set",
            fix=f"set {self.name} where this process runs",
            job=job,
            uid=self.uid,
            place=self.place,
        )


def needed_variables(job: Job) -> Iterator[NeededVariable]:
    """Yield the environment variables that a job's sources, operators and outputs read."""
    for node in job.nodes:
        if isinstance(node, SourceNode):
            for name, what in _of_source(node).items():
                yield NeededVariable(name, f"{what} of source {node.name!r}", node.name, node.place)
        elif isinstance(node, StatefulNode):
            for name, what in kind_of(node).variables(node).items():
                yield NeededVariable(name, what, node.uid, node.place)
    for output, declared in job.outputs.items():
        if isinstance(declared.sink, ConnectorSpec):
            for name, what in declared.sink.variables.items():
                yield NeededVariable(name, f"{what} of output {output!r}", output, declared.place)


def unset_variables(job: Job, environment: Mapping[str, str] | None = None) -> tuple[NeededVariable, ...]:
    """Return the environment variables that a job needs and that are not set, or blank.

    Args:
        job: the job.
        environment: instead of that of this process.
    """
    given = os.environ if environment is None else environment
    return tuple(needed for needed in needed_variables(job) if not given.get(needed.name, "").strip())


def require_environment(job: Job, environment: Mapping[str, str] | None = None) -> None:
    """Check that a job can be run here: it has its code, and the environment variables that it needs are set.

    No place is accessed, and no value is shown.

    Raises:
        DefinitionError: a variable is not set, or the job was read from its description.
    """
    if isinstance(job, DescribedJob):
        raise DefinitionError(
            "the job was read from its description, and cannot run", fix=f"run the job that its code declares, {job.code}", job=job.name
        )
    for needed in unset_variables(job, environment):
        raise needed.unset(job.name)


def _of_source(source: SourceNode) -> Mapping[str, str]:
    """Return what the environment variables of a source hold, by their names."""
    spec = source.spec
    match spec:
        case PostgresChangesSpec():
            return {spec.dsn_env: "the connection string"}
        case FormatSpec():
            found = {variable: f"the option {option}" for option, variable in spec.environment.items()}
            decoding = spec.decoding
            if decoding is not None and decoding.registry_env is not None:
                found[decoding.registry_env] = "the credentials of the registry"
            return found
        case _:
            return {}
