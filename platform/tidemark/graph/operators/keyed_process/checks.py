"""Checks of a process function where it is declared."""

from __future__ import annotations

import inspect

from tidemark.errors import DefinitionError
from tidemark.graph.expressions.function_checks import check_takes, shown_function
from tidemark.graph.model.schema import Schema
from tidemark.graph.operators.emitting import check_emitted
from tidemark.graph.operators.keyed_process.node import PROCESS_BATCH, KeyedProcessNode
from tidemark.graph.operators.keys import named_as_key
from tidemark.semantics.user_mistakes import bare

_FIX = "give it process(self, element, ctx), or pass a function of the element and the context"


def check_process(node: KeyedProcessNode, given: Schema | None) -> None:
    """Check the function, the names of its states, what it returns, and its side outputs.

    Raises:
        DefinitionError: or one of its kinds.
    """
    _check_function(node)
    _check_state_names(node)
    # Elements of two inputs that failed are put aside as JSON, in columns of their own.
    check_emitted(node, "process", given if len(node.methods) == 1 else None)


def _check_function(node: KeyedProcessNode) -> None:
    _check_names(node)
    function = node.function
    both = [name for name in ("process", PROCESS_BATCH) if callable(getattr(function, name, None))]
    if len(both) > 1 and node.by_batch:
        raise DefinitionError(
            f"process is given {shown_function(function)}, which has both process and process_batch",
            fix="leave one of them: process takes one element after the other, process_batch many at once",
            uid=node.uid,
            place=node.place,
        )
    for name in node.methods:
        method = getattr(function, name, function if len(node.methods) == 1 else None)
        if not callable(method):
            raise DefinitionError(
                f"process is given {shown_function(function)}, which has no {name}(element, ctx)",
                fix=_FIX if name == "process" else f"give it {name}(self, element, ctx)",
                uid=node.uid,
                place=node.place,
            )
        _check_method(node, method, name, 2, _FIX)
    for name, count in (("on_timer", 2), ("open", 1), ("close", 0)):
        method = getattr(function, name, None)
        if callable(method):
            arguments = {"on_timer": "self, timestamp, ctx", "open": "self, ctx", "close": "self"}[name]
            _check_method(node, method, name, count, f"write def {name}({arguments})")


def _check_names(node: KeyedProcessNode) -> None:
    """Check that no method has a name of Flink's, or one of a function with more inputs, by which nothing calls it."""
    kind = type(node.function)
    methods = {name: method for name in dir(kind) if not name.startswith("_") and callable(method := getattr(kind, name))}
    meant = {"ontimer": "on_timer", "processelement": node.methods[0], "processbatch": PROCESS_BATCH}
    meant |= {f"{verb}{number}": f"process{number}" for verb in ("process", "processelement", "flatmap") for number in (1, 2)}
    known = {*node.methods, "on_timer", "open", "close"}
    used = {name for method in methods.values() for name in getattr(getattr(method, "__code__", None), "co_names", ())}
    for name in sorted(methods.keys() - known - used):
        instead = meant.get(bare(name))
        connected = instead in {"process1", "process2"} and instead not in node.methods
        # A class may be made for both, one stream and two.
        if instead is None or instead in methods.keys() & known or (connected and methods.keys() >= {*node.methods}):
            continue
        first = {"on_timer": "timestamp", PROCESS_BATCH: "elements"}.get(instead, "element")
        raise DefinitionError(
            f"process is given {kind.__name__}, whose method {name!r} is called by nothing",
            fix="connect two streams: .connect(other.key_by(...)).process(...); or leave it out"
            if connected
            else f"name it {instead}(self, {first}, ctx)",
            uid=node.uid,
            place=node.place,
        )


def _check_state_names(node: KeyedProcessNode) -> None:
    """Check that no state is named as a key: tables of state have a column for each key and each state."""
    taken = named_as_key((name for name, _ in node.states), node.keys)
    if taken is not None:
        raise DefinitionError(
            f"process has the state {taken!r}, and a key has this name: a table of its state would have two such columns",
            fix=f"name the state otherwise, such as {taken + '_state'!r}; ctx.current_key has the key",
            uid=node.uid,
            place=node.place,
        )


def _check_method(node: KeyedProcessNode, method: object, name: str, count: int, fix: str) -> None:
    if count:
        check_takes(method, name, count=count, fix=fix, place=node.place, uid=node.uid)
    if inspect.iscoroutinefunction(method) or inspect.isasyncgenfunction(method):
        raise DefinitionError(
            f"{name} is an async function, and process functions are called one element after the other",
            fix="write def instead of async def",
            uid=node.uid,
            place=node.place,
        )
