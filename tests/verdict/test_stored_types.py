"""Which types hold the values of which."""

from __future__ import annotations

import pytest

from tidemark.savepoints.model.stored_types import shown_type, stored_columns, type_change, type_of_ddl


def struct(**fields: object) -> dict[str, object]:
    return {"type": "struct", "fields": [{"name": n, "type": t, "nullable": True, "metadata": {}} for n, t in fields.items()]}


def array(item: object, *, nulls: bool = True) -> dict[str, object]:
    return {"type": "array", "elementType": item, "containsNull": nulls}


@pytest.mark.parametrize(
    ("old", "new", "change"),
    [
        ("integer", "integer", "same"),
        ("byte", "long", "wider"),
        ("long", "integer", "other"),
        ("integer", "double", "wider"),
        ("long", "double", "other"),
        ("float", "double", "wider"),
        ("double", "float", "other"),
        ("integer", "float", "other"),
        ("integer", "decimal(10,0)", "wider"),
        ("integer", "decimal(11,2)", "other"),
        ("long", "decimal(20,2)", "other"),
        ("long", "decimal(22,2)", "wider"),
        ("decimal(10,2)", "decimal(12,2)", "wider"),
        ("decimal(10,2)", "decimal(10,3)", "other"),
        ("decimal(10,2)", "decimal(11,3)", "wider"),
        ("decimal(10,2)", "double", "other"),
        ("date", "timestamp", "other"),
        ("integer", "string", "other"),
        (array("integer"), array("long", nulls=False), "wider"),
        (array("integer"), array("integer", nulls=False), "same"),
        (array("integer"), "integer", "other"),
        (struct(a="integer", b="string"), struct(a="long", b="string"), "wider"),
        (struct(a="integer"), struct(b="integer"), "other"),
        (struct(a="integer"), struct(a="integer", b="integer"), "other"),
        (struct(a=array("long")), struct(a=array("integer")), "other"),
    ],
)
def test_changes_of_types(old: object, new: object, change: str) -> None:
    assert type_change(old, new) == change


NESTED = ("MAP<STRING, INT>", "STRUCT<a: INT, b: MAP<DATE, STRUCT<c: DECIMAL(5,2)>>>")


def test_types_as_the_graph_writes_them_and_as_they_are_shown() -> None:
    for ddl in ("INT", "BIGINT", "DOUBLE", "STRING", "TIMESTAMP", "BINARY", "ARRAY<INT>", "ARRAY<ARRAY<DATE>>", *NESTED):
        assert shown_type(type_of_ddl(ddl)) == ddl
    assert type_of_ddl("DECIMAL(10, 2)") == "decimal(10,2)"
    assert type_of_ddl("STRUCT<`a, <b`: INT>") == struct(**{"a, <b": "integer"})
    for unknown in ("", "MAP<STRING, UDT>", "MAP<STRING>", "STRUCT<a INT>", "STRUCT<a: INT NOT NULL>", "ARRAY<>", "ARRAY<INT, INT>"):
        assert type_of_ddl(unknown) is None, unknown
    assert shown_type(struct(a="long", b=array("integer"))) == "STRUCT<a: BIGINT, b: ARRAY<INT>>"
    assert stored_columns(struct(a="long")) == {"a": "long"}
    assert stored_columns(None) == {}
