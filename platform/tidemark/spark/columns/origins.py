"""Finds the operator and the user's line that a Spark error is about: by the SQL in it, or by a Python traceback."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from types import CodeType
from typing import Final

from tidemark.graph.checks.node_expressions import deferred_expressions, node_expressions
from tidemark.graph.expressions.expressions import Site
from tidemark.graph.model.nodes import FunctionNode, Node, StatefulNode, TransformNode
from tidemark.graph.operators.registry import kind_of

_SQL = re.compile(r"== SQL[^\n]*==\n(?P<shown>.*?)\n[ -]*\^", re.DOTALL)
_CALL = re.compile(r"== DataFrame ==\n[^\n]* was called from\n(?P<place>[^\n]+:\d+)")
_FRAME = re.compile(r'File "(?P<file>[^"]+)", line (?P<line>\d+), in (?P<name>\S+)')
_PLACEHOLDER = re.compile(r"\{\w+\}")
_NAMED = re.compile(r"`([^`]+)`")
_KEY = re.compile(r"\bkey_(\w+)")
_QUALIFIED = re.compile(r"\b(?:x\.e|acc\d\.state)\.`?(?P<name>[^`\s(),]+)`?")
"""Names in SQL that is evaluated for each item of an array, as users write them: of an element, and of the state so far."""

_RAISING = ("assert_true", "raise_error")
AS_CHANGELOG: Final = "as_changelog: {"
"""How the error begins that the engine raises for an operation which is none."""
USER_RAISED: Final = "USER_RAISED_EXCEPTION"
"""Spark's name for an error that an expression raised on purpose."""
_FOREIGN = re.compile(
    r"^<|/(?:pyspark|py4j|pyarrow|pandas|numpy|cloudpickle)/|/tidemark/(?:semantics|graph|spark|state)/|/lib/python3[.\d]*/(?!site-packages)"
)
"""Files whose lines mean nothing to the user."""


@dataclass(frozen=True)
class Origin:
    """The origin of an error: in words (empty where only the place is known), the operator's uid and the user's file and line."""

    what: str = ""
    uid: str | None = None
    place: str | None = None


def origin_of_expression(text: str, nodes: Sequence[Node]) -> Origin:
    """Return the origin of the expression that a Spark error is about.

    Args:
        text: the whole message; Spark shows the SQL, and for Columns made in Python the line that made them.
        nodes: the job's operators.
    """
    calls = [place for place in _CALL.findall(text) if not _FOREIGN.search(place)]
    if calls:
        return Origin(place=calls[-1])
    sites = (
        _by_raising(text, nodes)
        or _by_shown_sql(text, nodes)
        or _by_names(text, nodes)
        or _by_key(text, nodes)
        or _by_overflow(text, nodes)
    )
    if len(sites) == 1:
        site, expression = sites[0]
        return Origin(site.of(_one_line(expression)), site.uid, site.place or None)
    if sites:
        # The same text occurs in several operators, and Spark does not say which.
        return Origin(" or ".join(f"{site.of(_one_line(expression))} at {site.place}" for site, expression in sites[:3]))
    return Origin()


def origin_of_function(trace: str, nodes: Sequence[Node]) -> Origin:
    """Return the user's innermost line in a traceback, and the operator whose function was called, where that is unambiguous."""
    frames = [frame for frame in _FRAME.finditer(trace) if not _FOREIGN.search(frame["file"])]
    if not frames:
        return Origin()
    called = {(frame["file"], frame["name"]) for frame in frames}
    operators = [(what, node) for node in nodes for what, code in _functions(node) if (code.co_filename, code.co_name) in called]
    what, uid = (operators[0][0], operators[0][1].uid) if len(operators) == 1 else ("", None)
    return Origin(what, uid, f"{frames[-1]['file']}:{frames[-1]['line']}")


def _by_shown_sql(text: str, nodes: Sequence[Node]) -> list[tuple[Site, str]]:
    """Return the longest expressions that the SQL in a message contains, since one may be part of another."""
    shown = [_one_line(found["shown"]) for found in _SQL.finditer(text)]
    shown += [_QUALIFIED.sub(r"\g<name>", each) for each in shown if _QUALIFIED.search(each)]
    found = [(site, sql) for site, sql in _expressions(nodes) if any(_holds(each, _one_line(sql)) for each in shown)]
    longest = max((len(_one_line(sql)) for _, sql in found), default=0)
    return _distinct([(site, sql) for site, sql in found if len(_one_line(sql)) == longest])


def _holds(shown: str, sql: str) -> bool:
    """Return whether SQL that Spark shows contains an expression, or is a line of it; a template's placeholders match any name."""
    if shown in sql or re.search(rf"(?<!\w){re.escape(sql)}(?!\w)", shown):
        return True
    pieces = _PLACEHOLDER.split(sql)
    return len(pieces) > 1 and re.search(r"\S+?".join(map(re.escape, pieces)), shown) is not None


def _by_names(text: str, nodes: Sequence[Node]) -> list[tuple[Site, str]]:
    """Return the expressions that contain the first name that a message quotes."""
    names = _NAMED.findall(text.partition("\n")[0])
    if not names:
        return []
    # Where Spark names only its suggestion, that is the function with the prefix try_.
    name = names[0].removeprefix("try_")
    return _mentioning(name, nodes)


def _by_raising(text: str, nodes: Sequence[Node]) -> list[tuple[Site, str]]:
    """Return the expressions that may have raised an error on purpose, of which Spark shows only the text."""
    if USER_RAISED not in text:
        return []
    if AS_CHANGELOG in text:
        return _distinct([each for each in _expressions(nodes) if each[0].what == "as_changelog operation"])
    return _distinct([site for name in _RAISING for site in _mentioning(name, nodes)])


def _by_key(text: str, nodes: Sequence[Node]) -> list[tuple[Site, str]]:
    """Return the keys of windows that a message names by the engine's names."""
    keys = {f"key {name!r}" for name in _KEY.findall(text.partition("\n")[0])}
    return _distinct([(site, sql) for site, sql in _expressions(nodes) if site.what in keys])


def _by_overflow(text: str, nodes: Sequence[Node]) -> list[tuple[Site, str]]:
    """Return what may have added up to too large a number, where Spark shows no SQL: sums and additions."""
    if "ARITHMETIC_OVERFLOW" not in text or _SQL.search(text):
        return []
    sums = {
        (f"aggregate {name!r}", node.place, node.uid)
        for node in nodes
        for name, aggregate in getattr(node, "aggregates", ())
        if aggregate.kind == "sum"
    }
    return _distinct([(site, sql) for site, sql in _expressions(nodes) if (site.what, site.place, site.uid) in sums or "+" in sql])


def _mentioning(name: str, nodes: Sequence[Node]) -> list[tuple[Site, str]]:
    word = re.compile(rf"\b{re.escape(name)}\b")
    written = [(site, sql) for site, sql in _expressions(nodes) if word.search(sql)]
    made = [
        (site, f"{function.__name__}()") for node in nodes for site, function in deferred_expressions(node) if _mentions(function, name)
    ]
    return _distinct([*written, *made])


def _mentions(function: Callable[[], object], name: str) -> bool:
    code = getattr(function, "__code__", None)
    if not isinstance(code, CodeType):
        return False
    return name in code.co_names or any(name in constant.split(".") for constant in code.co_consts if isinstance(constant, str))


def _expressions(nodes: Sequence[Node]) -> Iterator[tuple[Site, str]]:
    for node in nodes:
        yield from node_expressions(node)


def _distinct(sites: list[tuple[Site, str]]) -> list[tuple[Site, str]]:
    return list({(site.what, site.place): (site, sql) for site, sql in sites}.values())


def _functions(node: Node) -> Iterator[tuple[str, CodeType]]:
    """Yield a node's Python functions, each with what calls it."""
    named: list[tuple[str, object]] = []
    match node:
        case FunctionNode() | TransformNode():
            named = [(node.kind if isinstance(node, FunctionNode) else "transform", node.function)]
        case StatefulNode():
            named = list(kind_of(node).functions(node))
    for what, function in named:
        code = getattr(function, "__code__", None)
        if isinstance(code, CodeType):
            yield f"{what} {getattr(function, '__name__', '')!r}", code


def _one_line(text: str) -> str:
    return " ".join(text.split())
