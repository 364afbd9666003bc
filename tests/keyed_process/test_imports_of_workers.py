"""What a Python worker loads before its first element: the task's own modules, and not all kinds of operators."""

from __future__ import annotations

import subprocess
import sys

import pytest

NOT_LOADED = ("tidemark.graph.operators.registry", "tidemark.spark.operators.registry.runtimes", "tidemark.graph.api.streams")
TASKS = (
    "keyed_process.task",
    "keyed.packed_task",
    "element_process.task",
    "async_map.task",
    "process.elements_task",
    "process.results_task",
)


@pytest.mark.parametrize("task", TASKS)
def test_a_task_loads_no_other_kinds(task: str) -> None:
    code = f"import sys, tidemark.spark.operators.{task}; print([name for name in {NOT_LOADED} if name in sys.modules])"
    found = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert found.stdout.strip() == "[]"
