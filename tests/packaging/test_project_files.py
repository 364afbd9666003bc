"""The files around the code agree with one another: pins with bounds, targets with programs, the entry with a function."""

from __future__ import annotations

import importlib
import os
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

CHECKOUT = Path(__file__).resolve().parents[2]
PROJECT = tomllib.loads((CHECKOUT / "pyproject.toml").read_text(encoding="utf-8"))["project"]


def pins() -> dict[str, str]:
    """Return the pinned version of each package of the lock."""
    lines = (CHECKOUT / "requirements.lock").read_text(encoding="utf-8").splitlines()
    entries = [line.split("==") for line in lines if not line.startswith("#")]
    return {canonicalize_name(name): version for name, version in entries}


def requirements() -> list[Requirement]:
    extras = [text for group in PROJECT["optional-dependencies"].values() for text in group]
    return [requirement for text in (*PROJECT["dependencies"], *extras) if (requirement := Requirement(text)).name != "tidemark"]


@pytest.mark.parametrize("requirement", requirements(), ids=str)
def test_every_requirement_is_pinned_within_its_bounds(requirement: Requirement) -> None:
    version = pins().get(canonicalize_name(requirement.name))
    assert version is not None, "run: make lock"
    assert requirement.specifier.contains(version), f"{requirement} does not take the pinned {version}"


def test_the_lock_names_packages_and_versions_and_nothing_else() -> None:
    lines = (CHECKOUT / "requirements.lock").read_text(encoding="utf-8").splitlines()
    assert [line for line in lines[1:] if not re.fullmatch(r"[A-Za-z0-9._-]+==[A-Za-z0-9._+!-]+", line)] == []


def test_the_command_is_a_function() -> None:
    module, _, function = PROJECT["scripts"]["tidemark"].partition(":")
    assert callable(getattr(importlib.import_module(module), function))


@pytest.mark.parametrize("name", ["scripts/setup", "scripts/run", "scripts/lock", ".ci/run"])
def test_programs_can_be_run_and_parse(name: str) -> None:
    assert os.access(CHECKOUT / name, os.X_OK)
    assert subprocess.run(["bash", "-n", str(CHECKOUT / name)], check=False).returncode == 0


@pytest.mark.skipif(shutil.which("make") is None, reason="make is not installed")
def test_every_target_of_the_readme_is_in_the_makefile() -> None:
    targets = set(re.findall(r"make ([a-z]+)\b", (CHECKOUT / "README.md").read_text(encoding="utf-8")))
    assert {"demo", "test", "check", "bench", "ui"} <= targets
    for target in sorted(targets):
        done = subprocess.run(["make", "--dry-run", target], check=False, capture_output=True, text=True, cwd=CHECKOUT)
        assert done.returncode == 0, done.stderr


def test_the_check_runs_every_part() -> None:
    done = subprocess.run(["make", "--dry-run", "check"], check=True, capture_output=True, text=True, cwd=CHECKOUT)
    for part in ("ruff check", "ruff format --check", "mypy", "lint-imports", "pytest"):
        assert part in done.stdout


def test_the_layout_for_tools_shows_every_package_under_its_import_name(tmp_path: Path) -> None:
    target = tmp_path / "layout"
    for _ in range(2):  # made anew over an earlier one
        subprocess.run([sys.executable, str(CHECKOUT / "scripts/layout.py"), str(target)], check=True, cwd=CHECKOUT)
    assert (target / "tidemark" / "errors.py").read_bytes() == (CHECKOUT / "platform/tidemark/errors.py").read_bytes()
    for part in ("assets", "resources", "sensors", "operations", "components"):
        assert (target / "tidemark" / part / "__init__.py").resolve() == CHECKOUT / part / "__init__.py"


def test_errors_say_how_to_install_from_a_checkout() -> None:
    """The package is on no index, so a command that names it there cannot work."""
    sources = [
        path
        for part in ("platform", "assets", "resources", "sensors", "operations", "components", "examples")
        for path in (CHECKOUT / part).rglob("*.py")
    ]
    assert len(sources) > 100
    wrong = [str(path) for path in sources if "pip install 'tidemark" in path.read_text() or 'pip install "tidemark' in path.read_text()]
    assert wrong == []


@pytest.mark.parametrize("target", ["demo", "setup", "ui"])
def test_the_first_targets_print_no_commands(target: str) -> None:
    makefile = (CHECKOUT / "Makefile").read_text(encoding="utf-8")
    rules = re.findall(r"^([^\s#:][^:=\n]*): ?([^=\n]*)\n((?:\t.*\n)+)", makefile, re.MULTILINE)
    assert any(names.split() == [target] for names, _, _ in rules) or target == "setup"
    for names, _, recipe in rules:
        if names in {target, "$(STAMP)", "$(ARCHIVE)", "$(DAGSTER_HOME)/dagster.yaml"}:
            assert [line for line in recipe.splitlines() if not line.startswith("\t@")] == []
