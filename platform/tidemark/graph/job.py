"""A job: named outputs, and with them everything that leads to them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from tidemark.graph.nodes import Node, Output, SourceNode, walk


@dataclass(frozen=True, eq=False)
class Job:
    """What is run, deployed and restored as one.

    Args:
        name: identifies the job in its store; becomes a folder.
        outputs: sinks by name, such as ``{"hourly_tips": delta(hourly, "warehouse/hourly_tips")}``.
        store: folder or bucket of job stores; None leaves it to whoever runs the job.
        parallelism: number of shuffle partitions; None leaves it to the session. It may change between runs.
        retained_epochs: how many epochs can be gone back to.
        description: what the job is for, in Markdown.
        owners: people or teams, such as ``"team:data"`` or an address.
        tags: free key-value pairs.
    """

    name: str
    outputs: Mapping[str, Output]
    store: str | None = None
    parallelism: int | None = None
    retained_epochs: int = 100
    description: str | None = None
    owners: tuple[str, ...] = ()
    tags: Mapping[str, str] = field(default_factory=dict)

    @property
    def nodes(self) -> tuple[Node, ...]:
        """All nodes of the graph, inputs before consumers."""
        return walk(output.node for output in self.outputs.values())

    @property
    def sources(self) -> Mapping[str, SourceNode]:
        """The sources by name, in the order of the graph."""
        return {node.name: node for node in self.nodes if isinstance(node, SourceNode)}

    def explain(self, format: Literal["text", "mermaid"] = "text") -> str:  # noqa: A002 - the word users know
        """Return a drawing of the graph."""
        from tidemark.graph.explain import explain

        return explain(self, format)
