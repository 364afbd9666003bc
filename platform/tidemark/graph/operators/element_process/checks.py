"""Checks of a function over elements where it is declared."""

from __future__ import annotations

import inspect

from tidemark.errors import ColumnError, DefinitionError
from tidemark.graph.expressions.ddl import parse_schema
from tidemark.graph.expressions.function_checks import check_takes
from tidemark.graph.expressions.name_checks import check_column_names
from tidemark.graph.model.schema import Schema
from tidemark.graph.operators.element_process.node import ElementProcessNode


def check_function(node: ElementProcessNode) -> None:
    """Check that a function, or the methods of its object, can be called for an element and the context.

    Raises:
        DefinitionError: it cannot.
    """
    function, name = node.function, node.method
    for other in ("on_timer", "process_batch"):
        if callable(getattr(function, other, None)):
            what = "timers" if other == "on_timer" else "batches of a key"
            raise DefinitionError(
                f"{name} is given {node.function_name}, which has {other}, and a stream without keys has no {what}",
                fix=f"key the stream: .key_by('id').process({node.function_name}, ...)",
                uid=node.uid,
                place=node.place,
            )
    method = getattr(function, name, function)
    fix = f"give it {name}(self, element, ctx), or pass a function of the element and the context"
    if not callable(method):
        raise DefinitionError(f"{name} is given {function!r}, which has no {name}(element, ctx)", fix=fix, uid=node.uid, place=node.place)
    check_takes(method, name, count=2, fix=fix, place=node.place, uid=node.uid)
    _check_is_plain(node, method, name)
    for other, count in (("open", 1), ("close", 0)):
        found = getattr(function, other, None)
        if callable(found):
            arguments = "self, ctx" if count else "self"
            if count:
                check_takes(found, other, count=count, fix=f"write def {other}({arguments})", place=node.place, uid=node.uid)
            _check_is_plain(node, found, other)


def check_rows(node: ElementProcessNode, given: Schema | None) -> None:
    """Check what a function returns, and its side outputs.

    Raises:
        DefinitionError: or one of its kinds.
    """
    name = node.called
    if not node.keeps_elements:
        _check_columns(node, node.returns, f"{name}(returns=...)")
    for tag, ddl in node.side_outputs:
        _check_columns(node, ddl, f"the side output {tag.name!r}")
    if node.on_error is not None and node.on_error.name in [tag.name for tag, _ in node.side_outputs]:
        raise DefinitionError(
            f"{name} uses the tag {node.on_error.name!r} for on_error and in side_outputs",
            fix="give each its own tag",
            uid=node.uid,
            place=node.place,
        )
    if node.on_error is not None and given is not None and given.find("error") is not None:
        raise ColumnError(
            f"{name}(on_error=...) adds a column 'error' to failed elements, and the stream has one already",
            fix="rename it before: .select(..., message='error')",
            uid=node.uid,
            place=node.place,
        )


def _check_columns(node: ElementProcessNode, ddl: str, what: str) -> None:
    check_column_names(parse_schema(ddl, place=node.place, what=what).names, what, node.place, uid=node.uid)


def _check_is_plain(node: ElementProcessNode, method: object, name: str) -> None:
    if inspect.iscoroutinefunction(method) or inspect.isasyncgenfunction(method):
        raise DefinitionError(
            f"{name} is an async function, and it is called for one element after the other",
            fix="write def instead of async def; or call it by .async_map(function, returns=...)",
            uid=node.uid,
            place=node.place,
        )
