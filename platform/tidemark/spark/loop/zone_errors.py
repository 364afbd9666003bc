"""Errors of elements without a time zone, in windows of local days with a zone of each element."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Final

from tidemark.errors import UserCodeError
from tidemark.graph.checks.node_expressions import node_expressions
from tidemark.graph.expressions.expression_text import shortened
from tidemark.graph.model.nodes import Node
from tidemark.graph.operators.window.node import WindowNode
from tidemark.semantics.windows.local_windows import LocalWindows
from tidemark.spark.columns.error_text import message_text
from tidemark.state.encoding.redaction import redacted

_RAISED: Final = re.compile(
    r"the zone (?P<text>.*?) of an element of (?P<uid>[\w.-]+) is (?P<what>null|'(?P<name>.*?)', no name in the IANA database)", re.DOTALL
)
_UNKNOWN: Final = re.compile(r"\[INVALID_TIMEZONE\][^\n]*?timezone: (?P<name>[^\n]*?) is invalid")
_OF_ZONES: Final = re.compile(r"(?i)timezone|utc_timestamp|make_timestamp")
"""What else in an expression of a user reads the name of a time zone."""


def zone_error(error: BaseException, nodes: Sequence[Node]) -> UserCodeError | None:
    """Return the error to raise where an element has no zone for its windows, None for other errors.

    Spark does not say which expression has met an unknown name: where several operators may have, the error names them all.

    Args:
        error: of Spark.
        nodes: of the job.
    """
    text = redacted(message_text(error))
    windows = [node for node in nodes if isinstance(node, WindowNode) and _zone_by(node) is not None]
    if found := _RAISED.search(text):
        node = next((each for each in windows if each.uid == found["uid"]), None)
        if node is None:
            return None
        what = "is null" if found["what"] == "null" else f"is {shortened(found['name'])!r}, no name in the IANA database"
        return _error(f"the zone {_zone_by(node)} of an element of {node.uid} {what}", [node])
    if windows and (found := _UNKNOWN.search(text)) and not _other_reads_zones(nodes):
        operators = " or ".join(f"{_zone_by(node)} of an element of {node.uid}" for node in windows)
        name = shortened(found["name"].strip("`'\""))
        return _error(f"the zone {operators} is {name!r}, which is no time zone", windows)
    return None


def _error(what: str, windows: Sequence[WindowNode]) -> UserCodeError:
    zone = _zone_by(windows[0])
    known = f"{zone} RLIKE '/|^UTC$' AND try_to_timestamp(concat('2026-01-01 00:00:00 ', {zone})) IS NOT NULL"
    node = windows[0] if len(windows) == 1 else None
    return UserCodeError(
        what,
        fix=f"set such elements aside before the windows: .filter(\"{known}\", rejects_to=tm.OutputTag('no_zone')), or give them a zone: "
        "coalesce(...)",
        uid=None if node is None else node.uid,
        place=None if node is None else node.place,
    )


def _zone_by(node: WindowNode) -> str | None:
    return node.assigner.zone_by if isinstance(node.assigner, LocalWindows) else None


def _other_reads_zones(nodes: Iterable[Node]) -> bool:
    """Return whether another expression of a job may have met an unknown zone."""
    return any(_OF_ZONES.search(text) for node in nodes for _, text in node_expressions(node))
