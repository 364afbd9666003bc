"""Finds the operator that emits a side output."""

from __future__ import annotations

from tidemark.errors import DefinitionError
from tidemark.graph.model.nodes import FilterNode, Node, OutputTag, SourceNode, SplitNode, StatefulNode, walk


def tags_of(node: Node) -> tuple[OutputTag, ...]:
    """Return the tags under which a node emits side outputs, in order."""
    tags: list[OutputTag | None]
    match node:
        case SourceNode():
            tags = [node.malformed_to]
        case FilterNode():
            tags = [node.rejects_to]
        case StatefulNode():
            tags = [*node.side_tags.values(), *node.emitted_tags.values()]
        case SplitNode():
            tags = [*(tag for tag, _ in node.branches), node.otherwise]
        case _:
            tags = []
    return tuple(tag for tag in tags if tag is not None)


def check_has_rows(node: Node, place: str) -> None:
    """Check that a node has a main output: the rows of a split are in its branches.

    Raises:
        DefinitionError: the node is a split.
    """
    if isinstance(node, SplitNode):
        tags = ", ".join(repr(tag.name) for tag in tags_of(node))
        raise DefinitionError(
            f"a split has no main output, its rows are in its branches {tags}",
            fix="take a branch with .side_output(tag)",
            place=place,
        )


def emitter_of(node: Node, tag: OutputTag, place: str) -> Node:
    """Return the node, this one or one before it, that emits a tag.

    Raises:
        DefinitionError: none does, or more than one; the message lists the existing tags.
    """
    ancestors = walk([node])
    emitters = [ancestor for ancestor in ancestors if tag in tags_of(ancestor)]
    if len(emitters) == 1:
        return emitters[0]
    name = getattr(tag, "name", tag)
    if emitters:
        places = ", ".join(emitter.place for emitter in emitters)
        raise DefinitionError(
            f"side output tag {name!r} is emitted by several operators ({places})", fix="give each its own tag", place=place
        )
    there = ", ".join(repr(other.name) for ancestor in ancestors for other in tags_of(ancestor))
    raise DefinitionError(
        f"no operator before this point emits side output tag {name!r}; tags here: {there or 'none'}",
        fix="name the tag in late_to, rejects_to, malformed_to, side_outputs or split, and take it from the stream that follows",
        place=place,
    )
