"""Checks at definition."""

from __future__ import annotations

from tidemark.graph.nodes import Node
from tidemark.names import validate_name


def check_node(node: Node) -> None:
    """Check one node against its inputs."""


def check_uid(node: Node, uid: str, place: str) -> None:
    """Check the uid that a node is to have."""
    validate_name("uid", uid, place=place)
