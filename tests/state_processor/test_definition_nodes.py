"""Operators that are made from their stored definitions read state as those that wrote it would."""

from __future__ import annotations

import dataclasses
import json

import pytest

from tests.verdict.stored import node_of, trips
from tests.verdict.test_operators import KINDS
from tidemark.errors import StateMismatchError
from tidemark.graph.operators.registry import encode
from tidemark.graph.operators.window.definition_decoder import functions_of, node_of_definition
from tidemark.spark.operators.base.partials import Partials
from tidemark.spark.operators.window.runtimes import window_runtime_of


@pytest.mark.parametrize("kind", KINDS)
def test_an_operator_comes_back_from_its_definition(kind: str) -> None:
    node = node_of(KINDS[kind](trips()))
    definition = json.loads(json.dumps(encode(node)))
    found = node_of_definition(definition, "w")
    assert (found.uid, found.assigner, found.allowed_lateness_ms) == ("w", node.assigner, node.allowed_lateness_ms)
    assert [name for name, _ in found.keys] == [name for name, _ in node.keys]
    assert Partials(found).columns == Partials(node).columns
    plain = [dataclasses.replace(each, function=None) if each.aggregates else each for each in (node, found)]
    assert type(window_runtime_of(plain[0])) is type(window_runtime_of(plain[1]))


def test_windows_of_a_kind_that_is_not_known_are_said() -> None:
    definition = {**encode(node_of(KINDS["tumbling"](trips()))), "assigner": {"kind": "Own", "description": "own"}}
    with pytest.raises(StateMismatchError, match="pass the job"):
        node_of_definition(definition, "w")


def test_which_aggregates_need_the_jobs_functions() -> None:
    node = node_of(KINDS["tumbling"](trips()))
    definition = encode(node)
    assert functions_of(definition) == []
    aggregates = definition["aggregates"]
    assert isinstance(aggregates, list)
    aggregates[0]["functions"] = [{"returns": "INT", "hash": "0"}]
    assert functions_of(definition) == ["n"]
