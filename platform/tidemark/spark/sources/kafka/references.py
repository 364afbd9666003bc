"""Avro schemas that name types of other schemas: one text with all of them, as Spark reads it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Final

_NAMED: Final = frozenset({"record", "enum", "fixed", "error"})


def with_references(text: str, others: Mapping[str, str]) -> str:
    """Return a schema in which the first mention of a type of another schema is that schema.

    Args:
        text: of the schema.
        others: schemas by the full name of their type.

    >>> other = '{"type": "fixed", "name": "geo.Point", "size": 2}'
    >>> with_references('["null", "geo.Point", "geo.Point"]', {"geo.Point": other})
    '["null", {"type": "fixed", "name": "geo.Point", "size": 2}, "geo.Point"]'
    """
    return json.dumps(_Inliner({name: json.loads(other) for name, other in others.items()}).schema(json.loads(text), ""))


class _Inliner:
    """Puts types in the place of their names, each once."""

    def __init__(self, others: Mapping[str, object]) -> None:
        self._left = dict(others)

    def schema(self, found: object, namespace: str) -> object:
        """Return a schema with the types that it names, within a namespace."""
        if isinstance(found, str):
            full = found if "." in found or not namespace else f"{namespace}.{found}"
            name = full if full in self._left else found
            return self.schema(self._left.pop(name), "") if name in self._left else found
        if isinstance(found, list):
            return [self.schema(each, namespace) for each in found]
        if not isinstance(found, dict):
            return found
        kind = found.get("type")
        if isinstance(kind, str) and kind in _NAMED:
            full = str(found.get("name", ""))
            inner = full.rpartition(".")[0] if "." in full else str(found.get("namespace", namespace))
            fields = [{**field, "type": self.schema(field.get("type"), inner)} for field in found.get("fields", ())]
            return {**found, "fields": fields} if "fields" in found else found
        parts = {name: self.schema(found[name], namespace) for name in ("type", "items", "values") if name in found}
        return {**found, **parts}
