"""What stands for the user's own code in a job that was read from its description: it has the code's name and texts, and cannot run."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from contextlib import suppress
from types import FunctionType
from typing import Final

from tidemark.errors import DefinitionError
from tidemark.graph.expressions.expression_text import function_name

_PLAIN: Final = (str, int, float, bool, type(None))


class StandIn:
    """A function, or an object such as a trigger, of the user's own: its plain attributes, and what it says of itself.

    Its class has the name of the function, or of the object's class: that is how texts name it.

    Args:
        attributes: its public attributes with plain values.
        methods: the names of its public methods.
        text: what its ``describe()`` returned, None if it has none.
    """

    def __init__(self, attributes: Mapping[str, object], methods: tuple[str, ...], text: str | None) -> None:
        self.__dict__.update(attributes)
        self.__dict__.update(dict.fromkeys(methods, self))
        if text is not None:
            self.__dict__["describe"] = lambda: text

    def __repr__(self) -> str:
        return f"<{type(self).__name__}, described>"

    def __call__(self, *_: object, **__: object) -> object:
        """Refuse to run.

        Raises:
            DefinitionError: always.
        """
        raise DefinitionError(
            f"{type(self).__name__} is known by its description only, and cannot be called",
            fix="load the job by its code, MODULE:JOB, where it is run",
        )


def describe_code(value: object) -> dict[str, object]:
    """Return what a stand-in needs to know of a function or object, as plain JSON."""
    attributes: dict[str, object] = {}
    methods = []
    for name in () if isinstance(value, FunctionType | type) else dir(value):
        found = inspect.getattr_static(value, name)
        if name.startswith("_") or name == "describe":
            continue
        if isinstance(found, property):
            # Of an object without what the property reads, the stand-in has no such attribute.
            with suppress(AttributeError):
                found = getattr(value, name)
        if isinstance(found, _PLAIN):
            attributes[name] = found
        elif inspect.isroutine(found):
            methods.append(name)
    return {"name": function_name(value), "attributes": attributes, "methods": methods, "text": _text_of(value)}


def _text_of(value: object) -> str | None:
    """Return what a trigger, evictor or assigner says of itself; other objects may have a method of that name for rows."""
    described = getattr(value, "describe", None)
    return str(described()) if inspect.ismethod(described) and not inspect.signature(described).parameters else None


def stand_in(described: Mapping[str, object]) -> StandIn:
    """Return the stand-in for what ``describe_code`` described.

    Raises:
        KeyError: a part is missing.
        TypeError: or is of another type.
    """
    name, attributes, methods, text = (described[part] for part in ("name", "attributes", "methods", "text"))
    if not (isinstance(name, str) and isinstance(attributes, Mapping) and isinstance(methods, list) and isinstance(text, str | None)):
        raise TypeError("not the description of a function or object")
    made: StandIn = type(name, (StandIn,), {})({str(key): value for key, value in attributes.items()}, tuple(map(str, methods)), text)
    return made
