"""The user's process function as the walk calls it: an instance of a class, or a plain function."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import FunctionType
from typing import Any

from tidemark.errors import UserCodeError
from tidemark.graph.operators.keyed_process.descriptors import STATES
from tidemark.semantics.keyed_process.context import ProcessContext
from tidemark.semantics.keyed_process.states import State, ValueState


class StateView:
    """The states of ``state=``, as ``ctx.state`` has them: handles by name; the fields of a dataclass are read and assigned to."""

    __slots__ = ("_fields", "_handles")

    def __init__(self, handles: Mapping[str, State], *, fields: bool) -> None:
        object.__setattr__(self, "_handles", handles)
        object.__setattr__(self, "_fields", fields)

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401  # of the declared type
        handle = self._handle(name)
        return handle.value() if self._fields and isinstance(handle, ValueState) else handle

    def __setattr__(self, name: str, value: object) -> None:
        handle = self._handle(name)
        if not self._fields or not isinstance(handle, ValueState):
            raise UserCodeError(f"ctx.state.{name} is assigned to", fix=f"write ctx.state.{name}.update({value!r})")
        handle.update(value)

    def _handle(self, name: str) -> State:
        handles: Mapping[str, State] = object.__getattribute__(self, "_handles")
        if name not in handles:
            known = ", ".join(handles) or "none"
            raise UserCodeError(f"there is no state {name!r}", fix=f"declare it; there are: {known}")
        return handles[name]


class BoundFunction:
    """A function in one task.

    Args:
        function: the user's: an object with ``process`` and, where timers are set, ``on_timer``, or a plain function.
        fields: whether ``state=`` is a dataclass, whose fields are read and assigned to.
        methods: names of those that process an element, one for each input.
    """

    def __init__(self, function: object, *, fields: bool = False, methods: Sequence[str] = ("process",)) -> None:
        self._function = function
        self._fields = fields
        self._has_attributes = hasattr(function, "__dict__") and not isinstance(function, FunctionType)
        found: list[Any] = [getattr(function, name, function) for name in methods]
        self.inputs: tuple[Callable[..., Any], ...] = tuple(found)
        on_timer = getattr(function, "on_timer", None)
        self.on_timer: Callable[..., Any] = self._no_timers if on_timer is None else on_timer

    def open(self, ctx: ProcessContext) -> None:
        """Call the user's ``open``, once per task."""
        opened = getattr(self._function, "open", None)
        if callable(opened):
            opened(ctx)

    def close(self) -> None:
        """Call the user's ``close``, at the end of a task, also of one that failed."""
        closed = getattr(self._function, "close", None)
        if callable(closed):
            closed()

    def bind(self, states: Mapping[str, State], ctx: ProcessContext) -> None:
        """Make the states of a key those that the function sees."""
        ctx.state = StateView(states, fields=self._fields)
        if self._has_attributes:
            vars(self._function)[STATES] = states

    def _no_timers(self, _timestamp: int, _ctx: ProcessContext) -> None:
        """Refuse a timer of a function that has no ``on_timer``."""
        name = getattr(self._function, "__name__", type(self._function).__name__)
        raise UserCodeError(f"{name} sets timers and has no on_timer", fix="give it on_timer(self, timestamp, ctx)")
