"""Checks of a function over elements where it is declared."""

from __future__ import annotations

import inspect

from tidemark.errors import DefinitionError
from tidemark.graph.expressions.function_checks import check_takes, shown_function
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
        raise DefinitionError(
            f"{name} is given {shown_function(function)}, which has no {name}(element, ctx)", fix=fix, uid=node.uid, place=node.place
        )
    check_takes(method, name, count=2, fix=fix, place=node.place, uid=node.uid)
    _check_is_plain(node, method, name)
    for other, count in (("open", 1), ("close", 0)):
        found = getattr(function, other, None)
        if callable(found):
            arguments = "self, ctx" if count else "self"
            if count:
                check_takes(found, other, count=count, fix=f"write def {other}({arguments})", place=node.place, uid=node.uid)
            _check_is_plain(node, found, other)


def _check_is_plain(node: ElementProcessNode, method: object, name: str) -> None:
    if inspect.iscoroutinefunction(method) or inspect.isasyncgenfunction(method):
        raise DefinitionError(
            f"{name} is an async function, and it is called for one element after the other",
            fix="write def instead of async def; or call it by .async_map(function, returns=...)",
            uid=node.uid,
            place=node.place,
        )
