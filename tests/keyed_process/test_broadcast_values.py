"""Values of a broadcast map can be read as lists and dicts, and changed at no depth."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import pyarrow as pa
import pytest

import tidemark as tm
from tidemark.errors import UserCodeError
from tidemark.semantics.keyed_process.broadcast_maps import read_only
from tidemark.testing import OperatorHarness

VALUE = {"ids": [3, 1, 2], "limits": {"high": {"degrees": [80.0]}}, "steps": [[1], [2]], "named": [("x", [1])], "note": "n"}
TYPE = pa.struct(
    {
        "ids": pa.list_(pa.int64()),
        "limits": pa.struct({"high": pa.struct({"degrees": pa.list_(pa.float64())})}),
        "steps": pa.list_(pa.list_(pa.int64())),
        "named": pa.map_(pa.string(), pa.list_(pa.int64())),
        "note": pa.string(),
    }
)

CHANGES: dict[str, Callable[[Any], object]] = {
    "append": lambda value: value["ids"].append(4),
    "extend": lambda value: value["ids"].extend([4]),
    "insert": lambda value: value["ids"].insert(0, 4),
    "remove": lambda value: value["ids"].remove(1),
    "pop": lambda value: value["ids"].pop(),
    "clear": lambda value: value["ids"].clear(),
    "sort": lambda value: value["ids"].sort(key=abs),
    "reverse": lambda value: value["ids"].reverse(),
    "assignment of an item": lambda value: value["ids"].__setitem__(0, 4),
    "assignment of a slice": lambda value: value["ids"].__setitem__(slice(None), []),
    "del": lambda value: value["ids"].__delitem__(0),
    "+=": lambda value: value["ids"].__iadd__([4]),
    "*=": lambda value: value["ids"].__imul__(2),
    "a field of a struct": lambda value: value["limits"].update(low=None),
    "a field within two structs": lambda value: value["limits"]["high"].pop("degrees"),
    "a list within structs": lambda value: value["limits"]["high"]["degrees"].append(1.0),
    "a list within a list": lambda value: value["steps"][0].append(1),
    "a list within a map": lambda value: value["named"][0][1].append(2),
    "what a slice has": lambda value: value["steps"][:1][0].append(1),
}


def value_of(given: Mapping[str, object]) -> Any:
    return read_only({"rules": {"r": copy.deepcopy(given)}})["rules"]["r"]


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_a_nested_value_cannot_be_changed(change: Callable[[Any], object]) -> None:
    value = value_of(VALUE)
    with pytest.raises(UserCodeError, match="changes a broadcast map, which it can only read") as refused:
        change(value)
    assert "through the broadcast stream" in refused.value.fix
    assert value == VALUE


def test_nested_values_are_read_as_lists_and_dicts() -> None:
    value = value_of(VALUE)
    assert isinstance(value["ids"], list)
    assert isinstance(value["limits"]["high"], dict)
    assert (sorted(value["ids"]), value["ids"] + [4], value["ids"][1:]) == ([1, 2, 3], [3, 1, 2, 4], [1, 2])
    assert json.loads(json.dumps(value)) == json.loads(json.dumps(VALUE))
    assert repr(value) == repr(VALUE)
    assert pa.array([value], TYPE) == pa.array([VALUE], TYPE)


def test_a_copy_can_be_changed() -> None:
    value = copy.deepcopy(value_of(VALUE))
    for change in CHANGES.values():
        change(copy.deepcopy(value))
    assert copy.copy(value_of(VALUE)["ids"]) == [3, 1, 2]
    assert (type(value), type(value["ids"]), type(value["limits"]["high"])) == (dict, list, dict)


ROUTES = tm.source(
    "routes", tm.from_elements([], schema="name STRING, at BIGINT, zones ARRAY<BIGINT>"), watermarks=tm.ascending(timestamp="at")
)
RIDES = tm.source("rides", tm.from_elements([], schema="ride STRING, at BIGINT"), watermarks=tm.ascending(timestamp="at"))


class Route:
    """Emits what it read, and keeps it."""

    seen = tm.value_state("ARRAY<BIGINT>")

    def process(self, element: Mapping[str, Any], ctx: tm.ProcessContext) -> Iterable[Mapping[str, object]]:
        zones = ctx.broadcast["routes"]["r"]["zones"]
        self.seen.update(zones)
        kept = self.seen.value()
        kept.append(element["at"])
        yield {"zones": zones, "kept": kept}


def test_what_is_read_is_emitted_and_kept_as_any_other_list() -> None:
    routes = ROUTES.broadcast("routes", key="name", value="zones ARRAY<BIGINT>")
    made = RIDES.key_by("ride").connect(routes).process(Route, returns="zones ARRAY<BIGINT>, kept ARRAY<BIGINT>").uid("op")
    harness = OperatorHarness(made)
    harness.process({"name": "r", "at": 0, "zones": [7]}, at=0, port="broadcast")
    for at in (1, 2):
        harness.process({"ride": "a", "at": at}, at=at, port="elements")
    assert harness.advance_watermark(5) == [{"zones": [7], "kept": [7, 1]}, {"zones": [7], "kept": [7, 2]}]
    assert harness.state() == [{"ride": "a", "seen": [7]}]
