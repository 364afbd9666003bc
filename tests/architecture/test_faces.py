"""Each package has a face: the public names of its ``__init__``. Docs, examples and the Dagster folders import nothing else."""

from __future__ import annotations

import importlib
import pkgutil
import re
from dataclasses import replace

import pytest

from tests.architecture.sources import CHECKOUT, Import, Source, package_sources, read_source

FACES = (
    "graph",
    "semantics",
    "state",
    "savepoints",
    "spark",
    "control",
    "testing",
    "web",
    "assets",
    "resources",
    "sensors",
    "operations",
    "components",
)
"""Packages of ``tidemark``; single modules, such as ``tidemark.errors``, are their own face."""

DAGSTER_FOLDERS = ("assets", "resources", "sensors", "operations", "components")
"""One part of five folders, which use one another's modules."""

PAGES = (CHECKOUT / "README.md", *sorted((CHECKOUT / "docs").glob("*/*.md")))
_IMPORT = re.compile(r"^\s*(?:from (tidemark[\w.]*) import|import (tidemark[\w.]*))", re.MULTILINE)


def is_face(module: str) -> bool:
    """Say whether others may import a module: ``tidemark``, one of its packages, or one of its single modules."""
    return module.count(".") <= 1


def in_dagster_folders(module: str) -> bool:
    """Say whether a module is in one of the five Dagster folders."""
    return module.startswith("tidemark.") and module.split(".")[1] in DAGSTER_FOLDERS


def outside_sources() -> list[Source]:
    """Return the files of the Dagster folders and the examples."""
    parts = [source for source in package_sources() if in_dagster_folders(source.module)]
    examples = [read_source(path, path.stem) for path in sorted((CHECKOUT / "examples").rglob("*.py"))]
    return parts + examples


def private_imports(source: Source) -> list[str]:
    """Return the imports of a file that go behind a face."""
    return [
        f"{source.place}:{imported.line}: {imported.module}"
        for imported in source.imports
        if imported.module.startswith("tidemark.") and not is_face(imported.module) and not in_dagster_folders(imported.module)
    ]


def test_the_dagster_folders_and_examples_import_faces_only() -> None:
    sources = outside_sources()
    assert len(sources) > 60
    assert [wrong for source in sources for wrong in private_imports(source)] == []


def test_a_private_import_is_found() -> None:
    source = next(source for source in outside_sources() if source.module.startswith("tidemark.assets."))
    imports = (Import("tidemark.control", "observe", 1, False), Import("tidemark.control.model.records", "Attempt", 2, True))
    wrong = replace(source, imports=imports)
    assert private_imports(wrong) == [f"{source.place}:2: tidemark.control.model.records"]


def test_docs_import_faces_only() -> None:
    found = {page.name: [a or b for a, b in _IMPORT.findall(page.read_text(encoding="utf-8"))] for page in PAGES}
    assert sum(map(len, found.values())) > 20
    assert {name: wrong for name, modules in found.items() if (wrong := [module for module in modules if not is_face(module)])} == {}


@pytest.mark.parametrize("package", ["", *FACES])
def test_every_public_name_is_there(package: str) -> None:
    face = importlib.import_module(f"tidemark.{package}".rstrip("."))
    assert face.__all__
    for name in face.__all__:
        value = getattr(face, name)
        assert value is getattr(face, name)
        assert not hasattr(value, "__path__"), f"{name} is a module"


@pytest.mark.parametrize("package", ["control", "graph", "savepoints", "semantics", "spark", "state", "testing", "web"])
def test_no_public_name_is_a_module_of_its_package(package: str) -> None:
    face = importlib.import_module(f"tidemark.{package}")
    modules = {module.name for module in pkgutil.iter_modules(face.__path__)}
    assert set(face.__all__) & modules == set()


OLD_PATHS = (
    ("tidemark.control.alert_checks", "tidemark.control", "CheckVerdict report_check"),
    ("tidemark.control.alert_silences", "tidemark.control", "Silence add_silence end_silence read_silences"),
    ("tidemark.control.forks", "tidemark.control", "fork diff_output"),
    ("tidemark.control.launchers", "tidemark.control", "launchers_here"),
    ("tidemark.control.metric_otel", "tidemark.control", "export_metrics"),
    ("tidemark.control.metric_server", "tidemark.control", "StoredJob serve_metrics"),
    ("tidemark.control.spec", "tidemark.control", "JobSpec"),
    ("tidemark.control.upgrade_records", "tidemark.control", "UpgradeCheck newest_step report_upgrade_check"),
    ("tidemark.control.upgrade_request", "tidemark.control", "UpgradeRequest begin_upgrade"),
    ("tidemark.control.upgrade_verdict", "tidemark.control", "Maps"),
    ("tidemark.control.upgrading", "tidemark.control", "Upgrading"),
    ("tidemark.spark.session", "tidemark.spark", "SETTINGS"),
    ("tidemark.state.store", "tidemark.state", "JobStore"),
)
"""What documentation named before the packages had faces: path, its package now, names."""


@pytest.mark.parametrize(("old", "package", "names"), OLD_PATHS)
def test_an_old_path_works_with_a_warning(old: str, package: str, names: str) -> None:
    module, face = importlib.import_module(old), importlib.import_module(package)
    for name in names.split():
        with pytest.warns(DeprecationWarning, match=f"Fix: from {package} import {name}"):
            assert getattr(module, name) is getattr(face, name)
    with pytest.raises(AttributeError, match="has no attribute 'nothing'"):
        _ = module.nothing
