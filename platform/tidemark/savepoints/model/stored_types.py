"""Types of stored columns in Spark's JSON form: how they are shown, and whether values of one fit into another without loss."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final, Literal, TypeGuard

Change = Literal["same", "wider", "other"]
"""Change of a column's type: same values; the same and more; values would be lost or mean something else."""

_DECIMAL: Final = re.compile(r"decimal\((\d+),\s*(-?\d+)\)")
_FIELD: Final = re.compile(r"(`(?:[^`]|``)*`|\w+): (.+)")
_JSON_NAMES: Final = {"TINYINT": "byte", "SMALLINT": "short", "INT": "integer", "BIGINT": "long"}
_SHOWN: Final = {json: sql for sql, json in _JSON_NAMES.items()}
_DIGITS: Final = {"byte": 3, "short": 5, "integer": 10, "long": 20}
_FRACTIONS: Final = {"double": ("float", "byte", "short", "integer"), "float": ("byte", "short")}
"""Whole numbers that each of these holds exactly, and the narrower of them."""

_PLAIN: Final = frozenset({"string", "boolean", "timestamp", "timestamp_ntz", "date", "binary", "double", "float", *_DIGITS})


def stored_columns(schema: object) -> dict[str, object]:
    """Return the types of a struct's columns by name; ``schema`` is Spark's JSON of it, anything else has none."""
    fields = schema.get("fields") if isinstance(schema, Mapping) else None
    if not isinstance(fields, list):
        return {}
    return {str(field["name"]): field["type"] for field in fields if isinstance(field, Mapping)}


OLDER: Final = "tidemark.older"
"""Metadata of a state column that only older files have, since the stream no longer has it."""


def older_columns(schema: object) -> frozenset[str]:
    """Return the names of the columns that only older files have; ``schema`` is as in ``stored_columns``."""
    fields = schema.get("fields") if isinstance(schema, Mapping) else None
    found = fields if isinstance(fields, list) else []
    return frozenset(str(field["name"]) for field in found if isinstance(field, Mapping) and (field.get("metadata") or {}).get(OLDER))


def type_of_ddl(ddl: str) -> object | None:
    """Return the JSON form of a type that the graph infers, None for kinds that it is not certain of.

    >>> type_of_ddl("ARRAY<DECIMAL(10, 2)>")
    {'type': 'array', 'elementType': 'decimal(10,2)', 'containsNull': True}
    >>> shown_type(type_of_ddl("MAP<STRING, STRUCT<a: INT>>")), type_of_ddl("STRUCT<a: INT NOT NULL>")
    ('MAP<STRING, STRUCT<a: INT>>', None)
    """
    found = _JSON_NAMES.get(ddl, ddl.lower())
    if found in _PLAIN:
        return found
    if decimal := _DECIMAL.fullmatch(found):
        return f"decimal({decimal[1]},{decimal[2]})"
    outer, _, inner = ddl.removesuffix(">").partition("<")
    if not inner:
        return None
    if outer == "STRUCT":
        return _struct_of_ddl(_split_types(inner))
    parts = [type_of_ddl(part) for part in _split_types(inner)]
    if None in parts:
        return None
    match outer, parts:
        case "ARRAY", [item]:
            return {"type": "array", "elementType": item, "containsNull": True}
        case "MAP", [key, value]:
            return {"type": "map", "keyType": key, "valueType": value, "valueContainsNull": True}
    return None


def _struct_of_ddl(fields: list[str]) -> object | None:
    found = []
    for field in fields:
        named = _FIELD.fullmatch(field)
        kind = None if named is None else type_of_ddl(named[2])
        if named is None or kind is None:
            return None
        name = named[1][1:-1].replace("``", "`") if named[1].startswith("`") else named[1]
        found.append({"name": name, "type": kind, "nullable": True, "metadata": {}})
    return {"type": "struct", "fields": found}


def _split_types(text: str) -> list[str]:
    """Return the parts of a list of types, or of fields, at the commas that are in no type and no name.

    >>> _split_types("`a, b`: INT, c: MAP<INT, STRUCT<d: DECIMAL(3, 1)>>")
    ['`a, b`: INT', 'c: MAP<INT, STRUCT<d: DECIMAL(3, 1)>>']
    """
    parts, depth, quoted = [""], 0, False
    for char in text:
        quoted ^= char == "`"
        if not quoted:
            depth += (char in "<(") - (char in ">)")
        if char == "," and not depth and not quoted:
            parts.append("")
        else:
            parts[-1] += char
    return [part.strip() for part in parts]


def type_change(old: object, new: object, *, compared: bool = False, evolves: bool = False) -> Change:
    """Return how a change of a column's type affects its values; nullability does not matter.

    Args:
        old: the stored type.
        new: the new type.
        compared: whether stored values are compared with new ones. A FLOAT of 0.1 equals none of the DOUBLEs that are read as 0.1.
        evolves: whether structs, but those in keys of maps, may have more fields, in another order: these are null in stored values.

    >>> type_change("integer", "long"), type_change("long", "double"), type_change("decimal(10,2)", "decimal(12,2)")
    ('wider', 'other', 'wider')
    >>> type_change("float", "double"), type_change("float", "double", compared=True)
    ('wider', 'other')
    >>> type_change(type_of_ddl("MAP<FLOAT, FLOAT>"), type_of_ddl("MAP<FLOAT, DOUBLE>"))
    'wider'
    >>> type_change(type_of_ddl("MAP<FLOAT, FLOAT>"), type_of_ddl("MAP<DOUBLE, FLOAT>"))
    'other'
    >>> before, after = type_of_ddl("ARRAY<STRUCT<a: INT>>"), type_of_ddl("ARRAY<STRUCT<b: STRING, a: BIGINT>>")
    >>> type_change(before, after, evolves=True), type_change(before, after), type_change(after, before, evolves=True)
    ('wider', 'other', 'other')
    """
    if isinstance(old, str) and isinstance(new, str):
        changes = compared and (old, new) == ("float", "double")
        return "same" if old == new else "wider" if _holds(new, old) and not changes else "other"
    if not (isinstance(old, Mapping) and isinstance(new, Mapping)) or old.get("type") != new.get("type"):
        return "other"
    match old.get("type"):
        case "array":
            return type_change(old.get("elementType"), new.get("elementType"), compared=compared, evolves=evolves)
        case "map":
            # Different keys stay different: no change here maps two values to one. A function looks them up by new ones.
            keys = type_change(old.get("keyType"), new.get("keyType"), compared=True)
            return _worst([keys, type_change(old.get("valueType"), new.get("valueType"), compared=compared, evolves=evolves)])
        case "struct":
            before, after = stored_columns(old), stored_columns(new)
            same = list(before) == list(after)
            if not same and not (evolves and before.keys() <= after.keys()):
                return "other"
            more: list[Change] = [] if same else ["wider"]
            return _worst(more + [type_change(before[name], after[name], compared=compared, evolves=evolves) for name in before])
    return "same" if old == new else "other"


def with_names_of(stored: object, wanted: object) -> object:
    """Return an array of structs with its fields renamed by position as in another one; any other type unchanged.

    >>> old = {"type": "array", "elementType": {"type": "struct", "fields": [{"name": "a", "type": "long"}]}}
    >>> new = {"type": "array", "elementType": {"type": "struct", "fields": [{"name": "b", "type": "string"}]}}
    >>> shown_type(with_names_of(old, new))
    'ARRAY<STRUCT<b: BIGINT>>'
    """
    fields = [each.get("elementType", {}).get("fields") if _is_array_of_structs(each) else None for each in (stored, wanted)]
    before, after = fields
    if before is None or after is None or len(before) != len(after):
        return stored
    named = [{**field, "name": other["name"]} for field, other in zip(before, after, strict=True)]
    return {"type": "array", "elementType": {"type": "struct", "fields": named}, "containsNull": True}


def _is_array_of_structs(kind: object) -> TypeGuard[Mapping[str, Any]]:
    item = kind.get("elementType") if isinstance(kind, Mapping) and kind.get("type") == "array" else None
    return isinstance(item, Mapping) and item.get("type") == "struct"


def _holds(wide: str, narrow: str) -> bool:
    """Return whether every value of one primitive type is also a value of another."""
    if wide in _DIGITS and narrow in _DIGITS:
        return _DIGITS[wide] > _DIGITS[narrow]
    if wide in _FRACTIONS:
        return narrow in _FRACTIONS[wide]
    decimal = _DECIMAL.fullmatch(wide)
    if decimal is None:
        return False
    whole, scale = int(decimal[1]) - int(decimal[2]), int(decimal[2])
    if narrow in _DIGITS:
        return whole >= _DIGITS[narrow]
    before = _DECIMAL.fullmatch(narrow)
    return before is not None and whole >= int(before[1]) - int(before[2]) and scale >= int(before[2])


def _worst(changes: list[Change]) -> Change:
    return "other" if "other" in changes else "wider" if "wider" in changes else "same"


def shown_type(kind: object) -> str:
    """Return a type as SQL has it.

    >>> shown_type({"type": "array", "elementType": "long"})
    'ARRAY<BIGINT>'
    """
    if isinstance(kind, str):
        return _SHOWN.get(kind, kind.upper())
    if not isinstance(kind, Mapping):
        return str(kind)
    match kind.get("type"):
        case "array":
            return f"ARRAY<{shown_type(kind.get('elementType'))}>"
        case "map":
            return f"MAP<{shown_type(kind.get('keyType'))}, {shown_type(kind.get('valueType'))}>"
        case "struct":
            return f"STRUCT<{', '.join(f'{name}: {shown_type(found)}' for name, found in stored_columns(kind).items())}>"
    return str(kind.get("type"))
