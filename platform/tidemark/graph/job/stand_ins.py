"""What stands for the user's own code in a job that was read from its description: it has the code's name and texts, and cannot run."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from types import FunctionType
from typing import Final

from tidemark.errors import DefinitionError
from tidemark.graph.expressions.expression_text import function_name

_ASKED: Final = ("after", "bound_ms", "can_merge", "domain", "merging")
"""What triggers, evictors, assigners and watermark generators are asked for. Other attributes may be secret, and are not described."""


class StandIn:
    """A function, or an object such as a trigger, of the user's own: what it is asked for, and what it says of itself.

    Its class has the name of the function, or of the object's class: that is how texts name it.

    Args:
        attributes: those that a trigger, evictor, assigner or watermark generator is asked for.
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
    public = [] if isinstance(value, FunctionType | type) else [name for name in dir(value) if not name.startswith("_")]
    attributes = {name: getattr(value, name) for name in _ASKED if name in public}
    methods = [name for name in public if name != "describe" and inspect.isroutine(inspect.getattr_static(value, name))]
    attributes = {name: found for name, found in attributes.items() if isinstance(found, str | int | None)}
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
