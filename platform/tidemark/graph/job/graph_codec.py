"""A job's graph as plain JSON, and back: nodes, sinks and all their settings; of the user's own code what it says of itself.

Classes are named in the JSON and looked up among those of ``described_classes``, whose fields are then set: no code of the JSON's runs,
and none of the job's.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import MISSING, Field, fields, is_dataclass
from typing import Any, Final, TypeVar

from tidemark.graph.job.described_classes import described_classes
from tidemark.graph.job.stand_ins import describe_code, stand_in
from tidemark.graph.model.nodes import Node, Output
from tidemark.graph.model.secret_options import holds_secret, names_secret
from tidemark.graph.model.source_specs import ElementsSpec

T = TypeVar("T")

_PLAIN: Final = (str, int, float, bool, type(None))
_HIDDEN: Final = "<hidden>"
_LEFT_OUT: Final = frozenset({"place"})
"""Fields that say where code is on the machine that it was read on."""


def encode_graph(nodes: Sequence[Node], outputs: Mapping[str, Output]) -> dict[str, object]:
    """Return the nodes, inputs before consumers, and the outputs, as plain JSON. Values of options that look secret are hidden."""
    encoder = _Encoder(nodes)
    return {
        "nodes": [encoder.fields_of(node) for node in nodes],
        "outputs": {name: encoder.fields_of(output) for name, output in outputs.items()},
    }


def decode_graph(graph: Mapping[str, Any]) -> dict[str, Output]:
    """Return the outputs with all that leads to them; the user's functions are stand-ins.

    Raises:
        KeyError: a class, a field or a part is missing.
        TypeError: or is of another type.
        IndexError: a node refers to one that is not before it.
    """
    decoder = _Decoder()
    for node in graph["nodes"]:
        decoder.nodes.append(decoder.instance(node, Node))
    return {str(name): decoder.instance(output, Output) for name, output in graph["outputs"].items()}


class _Encoder:
    def __init__(self, nodes: Sequence[Node]) -> None:
        self._numbers = {node: number for number, node in enumerate(nodes)}

    def fields_of(self, value: object) -> dict[str, object]:
        """Return an instance of a described class: its class, and those of its fields that differ from their defaults."""
        kind = type(value)
        found: dict[str, object] = {"is": kind.__qualname__}
        for field in _fields(kind):
            given = () if isinstance(value, ElementsSpec) and field.name == "batches" else getattr(value, field.name)
            if not _is_default(field, given):
                found[field.name] = self._value(given, options=field.name == "options")
        return found

    def _value(self, value: object, *, options: bool = False) -> object:
        if isinstance(value, _PLAIN):
            return value
        if isinstance(value, Node):
            return {"node": self._numbers[value]}
        if isinstance(value, Mapping):
            entries = {str(name): _HIDDEN if options and _is_secret(str(name), each) else each for name, each in value.items()}
            return {"map": {name: self._value(each) for name, each in entries.items()}}
        if isinstance(value, tuple | list):
            return [self._value(each) for each in value]
        if described_classes().get(type(value).__qualname__) is type(value):
            return self.fields_of(value)
        return {"code": describe_code(value)}


class _Decoder:
    def __init__(self) -> None:
        self.nodes: list[Node] = []

    def instance(self, given: Mapping[str, Any], wanted: type[T]) -> T:
        """Return an instance of a described class, its fields as they were: what its constructor checks was checked in the job's code."""
        kind = described_classes()[given["is"]]
        if not issubclass(kind, wanted):
            raise TypeError(f"{kind.__name__} is no {wanted.__name__}")
        known = {field.name: field for field in _fields(kind, all_fields=True)}
        if unknown := given.keys() - known.keys() - {"is"}:
            raise KeyError(*sorted(unknown))
        made = object.__new__(kind)
        for name, field in known.items():
            object.__setattr__(made, name, self._value(given[name]) if name in given else _default(field))
        return made

    def _value(self, value: object) -> object:
        if isinstance(value, list):
            return tuple(self._value(each) for each in value)
        if not isinstance(value, Mapping):
            return value
        if "is" in value:
            return self.instance(value, object)
        if "node" in value:
            return self.nodes[value["node"]]
        if "map" in value:
            return {name: self._value(each) for name, each in value["map"].items()}
        return stand_in(value["code"])


def _fields(kind: type, *, all_fields: bool = False) -> list[Field[Any]]:
    if not is_dataclass(kind):
        raise TypeError(f"{kind.__name__} has no fields")
    return [field for field in fields(kind) if all_fields or (field.init and field.name not in _LEFT_OUT)]


def _is_default(field: Field[Any], value: object) -> bool:
    if field.default_factory is not MISSING:
        return bool(value == field.default_factory())
    return field.default is not MISSING and isinstance(value, type(field.default)) and bool(value == field.default)


def _default(field: Field[Any]) -> object:
    if field.default_factory is not MISSING:
        return field.default_factory()
    if field.default is not MISSING:
        return field.default
    if field.name in _LEFT_OUT:
        return ""
    raise KeyError(field.name)


def _is_secret(name: str, value: object) -> bool:
    return names_secret(name) or (isinstance(value, str) and holds_secret(value))
