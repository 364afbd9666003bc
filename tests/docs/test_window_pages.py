"""The pages on windows: their jobs are those of the pictures, and what they promise is what the contract's reference says."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

import pytest

import tidemark as tm
from docs.pictures import windows
from docs.pictures.scenes import GENERATOR, SCENES, Scene, panes_of, time_of_day, total_of
from tests.docs.test_snippets import CHECKOUT, execute, pretend_to_run, snippets
from tidemark.graph.model.nodes import SourceNode
from tidemark.graph.operators.window.node import WindowNode
from tidemark.semantics.triggers.panes import ReplacedSession
from tidemark.semantics.windows.windows import GLOBAL_WINDOW

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

NAMES = [scene.name for scene in SCENES]
OVERVIEW = CHECKOUT / "docs/concepts/windows.md"


def page_of(scene: Scene) -> Path:
    return CHECKOUT / "docs/concepts/windows" / f"{scene.name}.md"


def defined(scene: Scene) -> ModuleType:
    """What the first block of a scene's page defines."""
    module = ModuleType(scene.name)
    exec(compile(snippets(page_of(scene))[0].code, scene.name, "exec"), module.__dict__)  # noqa: S102 - the project's own pages
    return module


def nodes_of(job: tm.Job) -> tuple[SourceNode, WindowNode]:
    window = next(output.node for output in job.outputs.values() if isinstance(output.node, WindowNode))
    source = window.input
    assert isinstance(source, SourceNode)
    return source, window


def shown_bounds(replaced: ReplacedSession) -> str:
    assert replaced.end is not None
    return f"[{time_of_day(replaced.start)}, {time_of_day(replaced.end)})"


def promised(scene: Scene) -> Iterator[str]:
    """What the reference says, in the order and form in which the pages print it."""
    results = scene.results()
    lines = []
    for pane in panes_of(results):
        total, global_one = total_of(pane.result), pane.window == GLOBAL_WINDOW
        start, end = (0, 0) if global_one else (pane.window.start, pane.window.end)
        bounds = [] if global_one else [f"[{time_of_day(start)},", f"{time_of_day(end)})"]
        row = [*bounds, pane.key[0], total.rides, total.dollars, pane.timing, pane.index, *map(shown_bounds, pane.replaces)]
        lines.append(((start, end, str(pane.key[0]), pane.index), " ".join(map(str, row))))
    yield from (line for _, line in sorted(lines))
    if nodes_of(defined(scene).job)[1].late_to is not None:
        for element in (late for result in results for late in result.late):
            yield f"late: {element.key[0]} {time_of_day(element.timestamp or 0)}"


@pytest.mark.parametrize("scene", SCENES, ids=NAMES)
def test_a_page_is_about_what_its_picture_shows(scene: Scene) -> None:
    module = defined(scene)
    source, window = nodes_of(module.job)
    given = tuple(tuple((zone, f"{time:%H:%M}", dollars) for zone, time, dollars in epoch) for epoch in module.FARES)
    assert given == scene.fares
    assert (window.assigner, window.allowed_lateness_ms, window.trigger) == (scene.assigner, scene.lateness_ms, scene.trigger)
    assert source.watermarks.generator == GENERATOR
    assert f"![{scene.title}: " in page_of(scene).read_text(encoding="utf-8")
    assert f"(../../pictures/windows-{scene.name}.svg)" in page_of(scene).read_text(encoding="utf-8")


@pytest.mark.parametrize("scene", SCENES, ids=NAMES)
def test_a_picture_is_what_the_reference_says(scene: Scene) -> None:
    drawn = (CHECKOUT / f"docs/pictures/windows-{scene.name}.svg").read_text(encoding="utf-8")
    assert drawn == windows.draw(scene), "run python -m docs.pictures.windows"
    for pane in panes_of(scene.results()):
        assert f">{pane.key[0]} {total_of(pane.result).rides} {pane.timing} {pane.index}</text>" in drawn


@pytest.mark.parametrize("scene", SCENES, ids=NAMES)
def test_a_page_promises_what_the_reference_says(scene: Scene) -> None:
    outputs = [snippet.output for snippet in snippets(page_of(scene)) if snippet.output is not None]
    assert outputs == ["\n".join(promised(scene)) + "\n"]


def test_the_pictures_show_panes_of_every_timing_and_late_elements() -> None:
    results = [result for scene in SCENES for result in scene.results()]
    assert {pane.timing for result in results for pane in result.panes} == {"EARLY", "ON_TIME", "LATE"}
    assert any(pane.replaces for result in results for pane in result.panes)
    assert sum(len(result.late) for result in results) >= 2


def test_the_overview_names_every_kind() -> None:
    text = OVERVIEW.read_text(encoding="utf-8")
    for scene in SCENES:
        assert f"(windows/{scene.name}.md)" in text
    triggers = [name for name in dir(tm) if name.endswith(("_trigger", "_evictor"))]
    assert triggers
    assert [name for name in triggers if f"`tm.{name}(" not in text] == []


def test_the_jobs_of_the_overview_can_be_defined(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    calls = pretend_to_run(monkeypatch)
    space: dict[str, object] = {}
    defined = [snippet for snippet in snippets(OVERVIEW) if snippet.output is None]
    for snippet in defined:
        exec(compile(snippet.code, snippet.place, "exec"), space)  # noqa: S102 - as above
    assert isinstance(space["job"], tm.Job)
    assert len(space["job"].outputs) == 6
    assert not calls


@pytest.mark.spark
@pytest.mark.usefixtures("spark")
def test_the_days_of_the_overview(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("TIDEMARK_STORE", raising=False)
    shown = [snippet for snippet in snippets(OVERVIEW) if snippet.output is not None]
    assert execute(shown, {"tm": tm}, capsys) == 1


@pytest.mark.spark
@pytest.mark.parametrize("scene", SCENES, ids=NAMES)
def test_a_page_does_what_it_says(
    spark: SparkSession, scene: Scene, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert spark.getActiveSession() is not None, "tm.run takes the session that is there"
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("TIDEMARK_STORE", raising=False)
    assert execute(snippets(page_of(scene)), {}, capsys) == 1
