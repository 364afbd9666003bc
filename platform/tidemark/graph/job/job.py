"""A job: named outputs, with all operators that lead to them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from types import MappingProxyType
from typing import TYPE_CHECKING, Literal, cast

from tidemark.errors import DefinitionError, TidemarkError
from tidemark.graph.job.job_checks import check_job
from tidemark.graph.model.call_site import call_site
from tidemark.graph.model.nodes import Node, Output, SourceNode, walk
from tidemark.graph.model.unknown_members import unknown_member
from tidemark.graph.model.wrong_calls import checked_methods
from tidemark.graph.model.wrong_operators import without_items


@without_items
@checked_methods("__init__")
@dataclass(frozen=True, eq=False)
class Job:
    """The unit that is run, deployed and restored.

    Args:
        name: identifies the job in its store; becomes a folder.
        outputs: sinks by name, such as ``{"hourly_tips": delta(hourly, "warehouse/hourly_tips")}``.
        store: folder or bucket of job stores; None leaves it to the run.
        parallelism: number of shuffle partitions; None leaves it to the session. It may change between runs.
        retained_epochs: how many of the newest epochs can be restored.
        description: what the job is for, in Markdown.
        owners: users or teams, such as ``"team:data"`` or an address.
        tags: free key-value pairs.
        functions: SQL functions that the session has besides Spark's own, such as ``["my_fn"]`` after ``spark.udf.register("my_fn", ...)``.
            Those with a database (``db.my_fn``) need not be named.

    Raises:
        DefinitionError: names or places that collide, a window without uid, settings out of range; names the line and the fix.
        ExpressionError: SQL calls a function that neither Spark has nor ``functions`` declares.
    """

    name: str
    outputs: Mapping[str, Output]
    store: str | None = None
    parallelism: int | None = None
    retained_epochs: int = 100
    description: str | None = None
    owners: Sequence[str] = ()
    tags: Mapping[str, str] = field(default_factory=dict)
    functions: Sequence[str] = ()
    place: str = field(default="", init=False)

    def __post_init__(self) -> None:
        """Check the whole job and freeze its arguments."""
        place, name = call_site(), cast("object", self.name)
        try:
            check_job(self, place)
        except TidemarkError as error:
            raise (error.with_job(name) if isinstance(name, str) else error) from error.__cause__
        frozen = {
            "place": place,
            "outputs": MappingProxyType(dict(self.outputs)),
            "owners": tuple(self.owners),
            "tags": MappingProxyType(dict(self.tags)),
            "functions": tuple(self.functions),
        }
        for name, value in frozen.items():
            object.__setattr__(self, name, value)

    def __repr__(self) -> str:
        return f"<Job {self.name}: {', '.join(self.outputs)}>"

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> object:
            """Raise the error that says what to write instead of other libraries' names."""
            raise unknown_member(self, name, "job", dir(self))

    @cached_property
    def nodes(self) -> tuple[Node, ...]:
        """All nodes of the graph, inputs before consumers."""
        return walk(output.node for output in self.outputs.values())

    @property
    def sources(self) -> Mapping[str, SourceNode]:
        """The sources by name, in the order of the graph."""
        return {node.name: node for node in self.nodes if isinstance(node, SourceNode)}

    def explain(self, format: Literal["text", "mermaid"] = "text") -> str:
        """Return a drawing of the graph: sources, operators, side outputs, sinks and what they guarantee.

        Raises:
            DefinitionError: another format than text or mermaid.
        """
        from tidemark.graph.job.explain import explain

        return explain(self, format)


def require_job(value: object, call: str, place: str) -> None:
    """Make sure that the argument of a function is a job.

    Args:
        value: the argument.
        call: the function, such as ``tm.run``.
        place: file and line of the call.

    Raises:
        DefinitionError: it is none; the fix says how to make a job of it.
    """
    if isinstance(value, Job):
        return
    given = f"the class {value.__name__}" if isinstance(value, type) else f"a {type(value).__name__}"
    raise DefinitionError(
        f"{call} is given {given}, not a job",
        fix=f"bind streams to sinks, and these to a job: {call}(tm.Job('taxi', outputs={{'fares': tm.delta(stream, 'warehouse/fares')}}))",
        place=place,
    )
