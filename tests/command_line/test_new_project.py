"""``tidemark new``: names, the folder, and projects that pass their own tests and load in Dagster."""

from __future__ import annotations

import ast
import errno
import importlib
import keyword
import os
import re
import subprocess
import sys
import tomllib
from collections.abc import Sequence
from pathlib import Path

import dagster as dg
import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st
from packaging.requirements import Requirement

from tests.seeds import only_long
from tidemark.cli.program.main import main
from tidemark.cli.projects.package_names import name_problem, proposed_name
from tidemark.cli.projects.rendering import TEMPLATES, TemplateName, render
from tidemark.control.desired.job_import import load_job
from tidemark.names import is_name

PROGRAMS = Path(sys.executable).parent


def make(folder: Path, *words: str, code: int = 0) -> str:
    done = CliRunner().invoke(main, ["new", *words, "--in", str(folder)])
    assert done.exit_code == code, (done.output, done.exception)
    return done.stdout if code == 0 else done.stderr


def tree(folder: Path) -> dict[str, str]:
    return {str(path.relative_to(folder)): path.read_text(encoding="utf-8") for path in folder.rglob("*") if path.is_file()}


def run(*command: str, cwd: Path, **variables: str) -> str:
    kept = {name: value for name, value in os.environ.items() if name not in {"DAGSTER_HOME", "PYTHONPATH", "PYTEST_ADDOPTS"}}
    done = subprocess.run(command, cwd=cwd, env={**kept, **variables}, capture_output=True, text=True, check=False, timeout=400)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


@pytest.mark.parametrize("template", TEMPLATES)
def test_a_project_passes_its_own_tests(tmp_path: Path, template: TemplateName) -> None:
    make(tmp_path, "rides", "--template", template)
    # Plugins of this environment are no dependencies of a project.
    command = (sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-W", "error")
    said = run(*command, cwd=tmp_path / "rides", PYTEST_DISABLE_PLUGIN_AUTOLOAD="1")
    assert " passed" in said
    assert "failed" not in said


@pytest.mark.dagster
@pytest.mark.parametrize("templates", [pytest.param(["taxi"], id="taxi"), pytest.param(TEMPLATES, id="all", marks=only_long)])
def test_dagster_loads_projects_by_their_workspaces(tmp_path: Path, templates: Sequence[TemplateName]) -> None:
    """Also that of Kafka, without a broker."""
    names = [f"{template}_rides" for template in templates]
    for template, name in zip(templates, names, strict=True):
        make(tmp_path, name, "--template", template)
    workspaces = [part for name in names for part in ("-w", f"{name}/workspace.yaml")]
    said = run(str(PROGRAMS / "dagster"), "definitions", "validate", *workspaces, cwd=tmp_path)
    assert [name for name in names if f"Validation successful for code location {name}" not in said] == []


def loaded(folder: Path, name: str, monkeypatch: pytest.MonkeyPatch) -> dg.Definitions:
    """Load a project's definitions in this process, so that each test needs a name of its own."""
    monkeypatch.syspath_prepend(str(folder / name))
    monkeypatch.chdir(folder / name)
    found = importlib.import_module(f"{name}.definitions").defs
    assert isinstance(found, dg.Definitions)
    return found


@pytest.mark.dagster
@pytest.mark.filterwarnings("ignore:The `__fields__` attribute is deprecated")  # Dagster's, over pydantic
def test_dagster_has_assets_operations_and_running_sensors(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make(tmp_path, "rides_in_dagster")
    defs = loaded(tmp_path, "rides_in_dagster", monkeypatch)
    repository = defs.get_repository_def()
    keys = repository.asset_graph.materializable_asset_keys | repository.asset_graph.external_asset_keys
    outputs = {f"rides_in_dagster/{name}" for name in ("by_minute", "late", "refunds", "malformed")}
    assert {*outputs, "trips"} <= {"/".join(key.path) for key in keys}
    jobs = {job.name.removeprefix("rides_in_dagster_") for job in defs.resolve_all_job_defs()}
    assert {"operate", "savepoint", "maintenance"} <= jobs
    sensors = [sensor.default_status.value for sensor in repository.sensor_defs]
    assert sensors == ["RUNNING"] * 4


@pytest.mark.dagster
@pytest.mark.filterwarnings("ignore:The `__fields__` attribute is deprecated")  # Dagster's, over pydantic
def test_the_definitions_of_each_template_load(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for template in TEMPLATES:
        name = f"{template}_in_dagster"
        make(tmp_path, name, "--template", template)
        defs = loaded(tmp_path, name, monkeypatch)
        dg.Definitions.validate_loadable(defs)
        assert {f"{name}_operate", f"{name}_savepoint"} <= {job.name for job in defs.resolve_all_job_defs()}


@pytest.mark.dagster
def test_a_definition_that_does_not_load_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make(tmp_path, "rides_that_fail")
    (tmp_path / "rides_that_fail" / "rides_that_fail" / "job.py").write_text("PROJECT = 1 / 0\n")
    with pytest.raises(ZeroDivisionError):
        loaded(tmp_path, "rides_that_fail", monkeypatch)


LATE = """
import json
from datetime import UTC, datetime, timedelta
from rides.generator import Generator
for seed in range(5):
    generator, now, watermark, rows, late, most = Generator(seed=seed), datetime(2026, 1, 1, tzinfo=UTC), 0, 0, 0, 0
    for epoch in range(120):
        now, newest = now + timedelta(seconds=5), watermark
        for line in (generator.line(now) for _ in range(100)):
            if line.endswith("}") and json.loads(line)["fare"] >= 0:
                at = int(datetime.fromisoformat(json.loads(line)["picked_up_at"]).timestamp() * 1000)
                rows, late = rows + 1, late + ((at // 60_000 + 1) * 60_000 - 1 + 30_000 <= watermark)
                newest = max(newest, at - 10_001)
        watermark, most = newest, max(most, late / rows)
    print(f"{late / rows:.4f} {most:.4f}")
"""


def test_so_few_trips_are_late_that_the_project_alerts_of_none(tmp_path: Path) -> None:
    """Some are late in ten minutes, and at no time as many as the limit with which the project submits its job."""
    make(tmp_path, "rides")
    assert '"--late-warn", "0.05"' in (tmp_path / "rides" / "rides" / "__main__.py").read_text(encoding="utf-8")
    for line in run(sys.executable, "-c", LATE, cwd=tmp_path / "rides").splitlines()[-5:]:
        share, most = map(float, line.split())
        assert 0.003 < share <= most < 0.05


@pytest.mark.parametrize("template", TEMPLATES)
def test_every_file_is_what_its_name_says(template: TemplateName) -> None:
    files = render(template, "rides")
    assert {"README.md", "pyproject.toml", "workspace.yaml", "dagster.yaml", ".gitignore", "tests/test_job.py"} <= set(files)
    assert {f"rides/{name}.py" for name in ("__init__", "__main__", "job", "generator", "definitions")} <= set(files)
    assert not any("@@" in text or "package/" in path or path.endswith(".tmpl") for path, text in files.items())
    for path, text in files.items():
        if path.endswith(".py"):
            ast.parse(text)
    project = tomllib.loads(files["pyproject.toml"])["project"]
    assert project["name"] == "rides"
    needed = [Requirement(text) for text in project["dependencies"]]
    assert (needed[0].name, needed[0].extras) == ("tidemark", {"dagster"})
    assert [each.name for each in needed[1:]] == (["confluent-kafka"] if template == "kafka" else [])
    assert "relative_path: rides/definitions.py\n" in files["workspace.yaml"]
    for command in ("$ python -m rides\n$ dagster dev\n", "$ pytest\n", "$ tidemark top\n"):
        assert command in files["README.md"]


@pytest.mark.parametrize("template", TEMPLATES)
def test_code_is_formatted_and_clean(tmp_path: Path, template: TemplateName) -> None:
    make(tmp_path, "rides", "--template", template)
    for command in (["format", "--check"], ["check", "--select", "E,F,I,UP,B,SIM,W,ANN,D1", "--ignore", "D103,D104,D107,ANN204"]):
        run(str(PROGRAMS / "ruff"), *command, "--isolated", "--no-cache", "--line-length", "120", ".", cwd=tmp_path / "rides")


def test_nothing_of_a_template_is_executed(tmp_path: Path) -> None:
    """Rendering in a process that imports neither Spark nor Dagster, nor the rendered modules."""
    program = (
        "import sys; from tidemark.cli.program.main import main; "
        f"main(['new', 'rides', '--in', {str(tmp_path)!r}], standalone_mode=False); "
        "print(sorted({name.partition('.')[0] for name in sys.modules} & {'pyspark', 'dagster', 'deltalake', 'pyarrow', 'rides'}))"
    )
    assert run(sys.executable, "-c", program, cwd=tmp_path).splitlines()[-1] == "[]"


def test_the_folder_and_the_next_steps_are_named(tmp_path: Path) -> None:
    said = make(tmp_path, "rides")
    for line in (
        f"{tmp_path}/rides: 12 files of the template taxi",
        f"cd {tmp_path}/rides",
        "pip install -e '.[dev]'",
        "python -m rides",
        "dagster dev",
    ):
        assert line in said
    assert (tmp_path / "rides" / "data" / "landing").is_dir(), "a job can be started before there is data"
    assert "tidemark connectors install kafka" in make(tmp_path, "clicks", "--template", "kafka")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["clicks", "rides"], "nothing else is left"


def test_the_job_is_named_like_the_project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make(tmp_path, "rides_of_new_york")
    monkeypatch.syspath_prepend(str(tmp_path / "rides_of_new_york"))
    assert load_job("rides_of_new_york.job:job").name == "rides_of_new_york"


@pytest.mark.parametrize(
    ("name", "reason", "proposal"),
    [
        ("Rides-2026", "lower-case letters", "rides_2026"),
        ("2rides", "beginning with a letter", "job_2rides"),
        ("../rides", "lower-case letters", "rides"),
        ("_rides", "beginning with a letter", "rides"),
        ("", "lower-case letters", "rides"),
        ("a" * 61, "up to 60", "a" * 50),
        ("class", "a word of Python's own", "class_job"),
        ("json", "standard library", "json_job"),
        ("tidemark", "installed package", "tidemark_job"),
        ("click", "installed package", "click_job"),
        ("test", "installed package", "test_job"),
        ("tests", "a folder of the project", "tests_job"),
        ("history", "a folder of the project", "history_job"),
        ("storage", "a folder of the project", "storage_job"),
        ("schedules", "a folder of the project", "schedules_job"),
        ("logs", "a folder of the project", "logs_job"),
    ],
)
def test_a_name_that_is_no_package_is_refused_with_a_proposal(tmp_path: Path, name: str, reason: str, proposal: str) -> None:
    said = make(tmp_path, name, code=1)
    assert "[TM104]" in said
    assert reason in said
    assert said.rstrip().endswith(f"tidemark new {proposal}")
    assert list(tmp_path.iterdir()) == []
    make(tmp_path, proposal)


@given(st.text(max_size=80))
def test_every_proposal_can_be_taken(name: str) -> None:
    proposal = proposed_name(name)
    assert name_problem(proposal) == ""
    assert is_name(proposal)
    assert proposal.isidentifier()
    assert not keyword.iskeyword(proposal)


def test_a_folder_with_files_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "rides").mkdir()
    (tmp_path / "rides" / "mine.txt").write_text("mine")
    assert "exists, and has files in it" in make(tmp_path, "rides", code=1)
    assert tree(tmp_path) == {"rides/mine.txt": "mine"}


def test_an_empty_folder_is_filled(tmp_path: Path) -> None:
    (tmp_path / "rides").mkdir()
    make(tmp_path, "rides")
    assert (tmp_path / "rides" / "README.md").exists()
    assert "exists" in make(tmp_path, "rides", code=1), "and not a second time"


def test_a_file_and_a_link_are_left_alone(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "rides").write_text("mine")
    (tmp_path / "trips").symlink_to(tmp_path / "elsewhere")
    for name in ("rides", "trips"):
        assert "exists, and is no folder" in make(tmp_path, name, code=1)
    assert list((tmp_path / "elsewhere").iterdir()) == []


def test_a_home_that_nobody_has_is_refused() -> None:
    said = make(Path("~nobody-of-that-name/projects"), "rides", code=1)
    assert "--in ~nobody-of-that-name/projects: " in said
    assert "Fix:" in said


@pytest.mark.parametrize("method", ["is_dir", "iterdir"])
def test_a_folder_that_may_not_be_read_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, method: str) -> None:
    (tmp_path / "rides").mkdir()
    whole = getattr(Path, method)

    def refused(path: Path) -> object:
        if path.is_relative_to(tmp_path):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
        return whole(path)

    monkeypatch.setattr(Path, method, refused)
    assert "cannot be written: Permission denied" in make(tmp_path, "rides", code=1)


def test_names_that_git_ignores_are_those_of_no_project() -> None:
    ignored = [line.strip("/") for line in render("taxi", "rides")[".gitignore"].splitlines() if re.fullmatch(r"/\w+/", line)]
    assert {"history", "logs"} <= set(ignored)
    assert [name for name in ignored if not name_problem(name)] == []


def test_the_variables_of_kafka_are_for_each_terminal() -> None:
    text = " ".join(render("kafka", "rides")["README.md"].split())
    assert "set them in each terminal that you use for this project" in text
    assert "both terminals" not in text


def test_a_folder_above_that_is_missing_is_not_created(tmp_path: Path) -> None:
    assert "there is no folder" in make(tmp_path / "nowhere", "rides", code=1)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("writes", [0, 1, 7])
def test_nothing_half_written_stays_when_the_disk_is_full(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, writes: int) -> None:
    whole, left = Path.write_text, [writes]

    def write_text(path: Path, text: str, **settings: str) -> int:
        if not left[0]:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        left[0] -= 1
        return whole(path, text, **settings)

    monkeypatch.setattr(Path, "write_text", write_text)
    assert "cannot be written: No space left on device" in make(tmp_path, "rides", code=1)
    assert list(tmp_path.iterdir()) == []


def test_files_that_come_in_between_are_left_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    renamed = os.rename

    def rename(made: Path, folder: Path) -> None:
        folder.mkdir()
        (folder / "mine.txt").touch()
        renamed(made, folder)

    monkeypatch.setattr(os, "rename", rename)
    assert "cannot be written: Directory not empty" in make(tmp_path, "rides", code=1)
    assert tree(tmp_path) == {"rides/mine.txt": ""}


def test_an_unknown_template_names_those_that_there_are(tmp_path: Path) -> None:
    said = make(tmp_path, "rides", "--template", "taxis", code=2)
    assert all(template in said for template in TEMPLATES)
