"""The wheel holds every module: built, installed into an empty folder, and imported from there and nowhere else."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

CHECKOUT = Path(__file__).resolve().parents[2]
PLACES = {
    "tidemark": "platform/tidemark",
    "tidemark.assets": "assets",
    "tidemark.resources": "resources",
    "tidemark.sensors": "sensors",
    "tidemark.operations": "operations",
    "tidemark.components": "components",
}

# Runs isolated, so neither the working directory nor PYTHONPATH count, and without the import hook of an editable installation.
IMPORT_ALL = """
import importlib, sys
folder, *names = sys.argv[1:]
sys.meta_path[:] = [finder for finder in sys.meta_path if not str(getattr(finder, "__module__", finder)).startswith("__editable__")]
sys.path.insert(0, folder)
wrong = []
for name in names:
    try:
        module = importlib.import_module(name)
    except ImportError as error:
        wrong.append(f"{name}: {error}")
    else:
        if not (module.__file__ or "").startswith(folder):
            wrong.append(f"{name}: comes from {module.__file__}")
print("\\n".join(wrong))
"""


def modules_of_checkout() -> set[str]:
    """Return the import names of all modules as the source folders have them, not as pyproject.toml lists them."""
    return {
        ".".join((package, *(part for part in path.relative_to(CHECKOUT / place).with_suffix("").parts if part != "__init__")))
        for package, place in PLACES.items()
        for path in (CHECKOUT / place).rglob("*.py")
    }


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    copy = folder / "checkout"
    # Built from a copy, so that no build folder of an earlier day adds a module that is no longer there.
    for name in ("pyproject.toml", "README.md", "LICENSE", *PLACES.values()):
        target = copy / name
        target.parent.mkdir(parents=True, exist_ok=True)
        run("cp", "-R", str(CHECKOUT / name), str(target))
    run(sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(folder), str(copy))
    (built,) = folder.glob("tidemark-*.whl")
    return built


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    run(sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-index", "--target", str(folder), str(wheel))
    return folder


def run(*command: str, cwd: Path | None = None) -> str:
    done = subprocess.run(command, check=False, capture_output=True, text=True, cwd=cwd)
    assert done.returncode == 0, f"{' '.join(command)}\n{done.stdout}\n{done.stderr}"
    return done.stdout


@pytest.mark.packaging
def test_every_module_imports_from_the_installed_wheel(installed: Path, tmp_path: Path) -> None:
    modules = modules_of_checkout()
    assert {"tidemark", "tidemark.errors", "tidemark.spark.env.java", "tidemark.assets"} <= modules
    assert run(sys.executable, "-I", "-c", IMPORT_ALL, str(installed), *sorted(modules), cwd=tmp_path).strip() == ""


@pytest.mark.packaging
def test_the_wheel_holds_the_package_and_nothing_else(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
    roots = {name.partition("/")[0] for name in names}
    assert {root for root in roots if not root.endswith(".dist-info")} == {"tidemark"}
    assert "tidemark/py.typed" in names
    assert any(name.endswith(".dist-info/licenses/LICENSE") for name in names)


@pytest.mark.packaging
def test_the_wheel_holds_the_templates_of_projects(wheel: Path) -> None:
    source = CHECKOUT / PLACES["tidemark"]
    templates = {f"tidemark/{path.relative_to(source)}" for path in source.rglob("*.tmpl")}
    assert "tidemark/cli/projects/templates/taxi/package/job.py.tmpl" in templates
    with zipfile.ZipFile(wheel) as archive:
        assert templates - set(archive.namelist()) == set()


@pytest.mark.packaging
def test_the_wheel_holds_all_that_the_page_in_the_browser_loads(wheel: Path) -> None:
    folder = CHECKOUT / PLACES["tidemark"] / "web" / "page" / "static"
    loaded = {f"tidemark/web/page/static/{path.name}" for path in folder.iterdir()}
    assert {f"tidemark/web/page/static/{name}" for name in ("index.html", "page.js", "style.css", "icon.svg")} <= loaded
    with zipfile.ZipFile(wheel) as archive:
        assert loaded - set(archive.namelist()) == set()


@pytest.mark.packaging
def test_a_missing_module_is_found(installed: Path, tmp_path: Path) -> None:
    answer = run(sys.executable, "-I", "-c", IMPORT_ALL, str(installed), "tidemark.errors", "tidemark.nowhere", cwd=tmp_path)
    assert answer.strip() == "tidemark.nowhere: No module named 'tidemark.nowhere'"


@pytest.mark.packaging
def test_the_command_is_installed(installed: Path) -> None:
    entries = next(installed.glob("tidemark-*.dist-info/entry_points.txt")).read_text(encoding="utf-8")
    assert "tidemark = tidemark.cli.program.main:main" in entries
