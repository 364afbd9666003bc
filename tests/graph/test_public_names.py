"""What ``import tidemark`` gives and what it costs."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import tidemark as tm

HEAVY = ("pyspark", "dagster", "deltalake", "sqlglot", "pyarrow", "obstore", "great_expectations", "pandas")


def test_import_loads_nothing_heavy() -> None:
    program = f"import sys, tidemark; print([name for name in {HEAVY!r} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_defining_a_job_starts_no_spark() -> None:
    program = """
import sys, tidemark as tm
rows = tm.source("rows", tm.rate(rows_per_second=1), watermarks=tm.bounded_out_of_orderness("1 s", timestamp="timestamp"))
counts = rows.key_by(k="value % 3").window(tm.tumbling("1 minute")).aggregate(n=tm.count()).uid("counts")
windows = rows.key_by(k="value % 3").window(tm.session(gap_by="value")).trigger(tm.event_time_trigger(early=tm.count_trigger(5)))
lists = windows.evictor(tm.time_evictor("1 second")).process(lambda elements, context: [], returns="n INT").uid("lists")
sums = windows.discarding().reduce(value="a.value + b.value").uid("sums")
job = tm.Job("j", outputs={name: tm.delta(stream, name) for name, stream in {"counts": counts, "lists": lists, "sums": sums}.items()})
job.explain("mermaid")
print([name for name in ("pyspark", "dagster", "deltalake", "pyarrow") if name in sys.modules])
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def imported_for_type_checkers() -> set[str]:
    tree = ast.parse(Path(tm.__file__).with_suffix(".pyi").read_text(encoding="utf-8"))
    return {alias.name for node in tree.body if isinstance(node, ast.ImportFrom) for alias in node.names}


def test_names_for_people_and_for_type_checkers_agree() -> None:
    assert imported_for_type_checkers() == set(tm.__all__)
    assert set(tm.__all__) <= set(dir(tm))
    assert list(tm.__all__) == sorted(tm.__all__)


@pytest.mark.parametrize("name", tm.__all__)
def test_every_public_name_is_there(name: str) -> None:
    assert getattr(tm, name) is not None


def test_unknown_names_are_attribute_errors() -> None:
    with pytest.raises(AttributeError, match="no attribute 'tumblnig'"):
        tm.tumblnig  # type: ignore[attr-defined]  # noqa: B018
