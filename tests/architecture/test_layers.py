"""Imports run one way. import-linter says the same of whole chains; this needs no links and names the line."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from tests.architecture.sources import CHECKOUT, Import, Source, package_sources, read_source

# A part may import parts of a lower rank, and itself. The Dagster folders are one part; Components are on top of it.
RANKS = {
    "errors": 0,
    "clock": 1, "durations": 1, "crashpoints": 1, "names": 1, "locations": 1, "moved": 1,
    "semantics": 2,
    "graph": 3, "state": 3,
    "savepoints": 4,
    "spark": 5,
    "control": 6, "testing": 6,
    "web": 7,
    "cli": 8,
    "assets": 9, "resources": 9, "sensors": 9, "operations": 9, "components": 10,
}  # fmt: skip
DAGSTER_PARTS = {"assets", "resources", "sensors", "operations", "components"}
ORCHESTRATION = {"dagster", "dagster_pyspark", "dagster_slack", "dagster_webserver", "great_expectations"}


def part_of(module: str) -> str:
    """Return the part of ``tidemark`` a module belongs to, empty for the package itself."""
    return module.split(".")[1] if "." in module else ""


def part_imported(imported: Import) -> str | None:
    if imported.module == "tidemark":
        return imported.name if imported.name in RANKS else ""
    return part_of(imported.module) if imported.module.startswith("tidemark.") else None


def upward_imports(source: Source) -> list[str]:
    own = part_of(source.module)
    wrong = []
    for imported in source.imports:
        target = part_imported(imported)
        if target is None or imported.type_checking or own == "":
            continue
        if target == "":
            allowed = RANKS[own] >= RANKS["control"]  # the facade reaches up to tidemark.spark
        else:
            allowed = target == own or RANKS[target] < RANKS[own] or ({own, target} <= DAGSTER_PARTS and target != "components")
        if not allowed:
            wrong.append(f"{source.place}:{imported.line}: {own} imports {imported.module}")
    return wrong


def test_every_module_belongs_to_a_part() -> None:
    unknown = [source.place for source in package_sources() if part_of(source.module) not in {"", *RANKS}]
    assert unknown == [], "give the part a rank here and a layer in pyproject.toml"


def test_imports_run_one_way() -> None:
    assert [wrong for source in package_sources() for wrong in upward_imports(source)] == []


def test_only_spark_imports_pyspark_and_only_the_dagster_folders_import_dagster() -> None:
    wrong = []
    for source in package_sources():
        own = part_of(source.module)
        for imported in source.imports:
            root = imported.module.partition(".")[0]
            sparks = root in {"pyspark", "py4j"} and own != "spark" and not imported.type_checking
            dagsters = root in ORCHESTRATION and own not in DAGSTER_PARTS
            if sparks or dagsters:
                wrong.append(f"{source.place}:{imported.line}: imports {imported.module}")
    assert wrong == []


def test_an_upward_import_is_found(tmp_path: Path) -> None:
    path = tmp_path / "wrong.py"
    path.write_text("from tidemark.spark.loop.run import run\nif TYPE_CHECKING:\n    from tidemark.spark.epoch.epoch import run_epoch\n")
    source = replace(read_source(path, "tidemark.graph.wrong"), path=CHECKOUT / "wrong.py")
    assert upward_imports(source) == ["wrong.py:1: graph imports tidemark.spark.loop.run"]


SMALL = (
    "import tidemark",
    "import tidemark as tm; tm.source, tm.delta, tm.tumbling, tm.Job",
    "import tidemark.state.status.status, tidemark.state.status.history",
    "import tidemark.spark.env.java",
    "import tidemark.spark.epoch.schedule",
    "import examples.taxi.job",
)


def modules_after(statements: Sequence[str]) -> list[set[str]]:
    """Return the root packages that a fresh interpreter has loaded after each of some statements, one after the other."""
    show = "print(' '.join({name.partition('.')[0] for name in sys.modules}))"
    code = "\n".join(["import sys", *(f"{statement}\n{show}" for statement in statements)])
    done = subprocess.run([sys.executable, "-c", code], check=False, capture_output=True, text=True, cwd=CHECKOUT)
    assert done.returncode == 0, done.stderr
    return [set(line.split()) for line in done.stdout.splitlines()]


def test_definitions_and_small_files_load_neither_pyspark_nor_dagster() -> None:
    for statement, loaded in zip(SMALL, modules_after(SMALL), strict=True):
        assert "tidemark" in loaded
        assert loaded.isdisjoint({"pyspark", "py4j", "pandas", *ORCHESTRATION}), statement
