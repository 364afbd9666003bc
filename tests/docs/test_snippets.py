"""The documentation shows what runs: its snippets are executed, their output is compared, its links lead somewhere."""

from __future__ import annotations

import inspect
import re
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

import pytest

import tidemark as tm
from docs.pictures import timeline
from tidemark.assets.definitions.bound_job import bound_job
from tidemark.spark.loop.run import run

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

CHECKOUT = Path(__file__).resolve().parents[2]
PAGES = sorted([*CHECKOUT.glob("*.md"), *(CHECKOUT / "docs").rglob("*.md")])

_BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_FILE_NAME = re.compile(r"# (\w+)\.py\n")
_LINK = re.compile(r"\]\(([^)\s]+)\)")
_HEADING = re.compile(r"^#+ (.+)$", re.MULTILINE)


@dataclass(frozen=True)
class Snippet:
    """One block of Python: where it stands, its code, and the output that the block after it promises."""

    place: str
    code: str
    output: str | None

    @property
    def module(self) -> str | None:
        """The module that the reader is told to save it as."""
        named = _FILE_NAME.match(self.code)
        return named[1] if named else None


def snippets(page: Path) -> list[Snippet]:
    text = page.read_text(encoding="utf-8")
    blocks = list(_BLOCK.finditer(text))
    found = []
    for number, block in enumerate(blocks):
        if block[1] != "python":
            continue
        after = blocks[number + 1] if number + 1 < len(blocks) else None
        follows = after is not None and after[1] == "text" and not text[block.end() : after.start()].strip()
        line = text.count("\n", 0, block.start()) + 1
        found.append(Snippet(f"{page.relative_to(CHECKOUT)}:{line}", block[2], after[2] if after and follows else None))
    return found


def write_first_job(folder: Path) -> None:
    """Write the modules of the page of the first job, which other pages start from, into a folder."""
    for snippet in snippets(CHECKOUT / "docs/how-to/first-job.md"):
        if snippet.module is not None:
            (folder / f"{snippet.module}.py").write_text(snippet.code, encoding="utf-8")


def execute(found: list[Snippet], space: dict[str, object], capsys: pytest.CaptureFixture[str]) -> int:
    """Do what a reader does: save the blocks that are files, run the others in one session; returns how many outputs were compared."""
    compared = 0
    for snippet in found:
        if snippet.module is not None:
            Path(f"{snippet.module}.py").write_text(snippet.code, encoding="utf-8")
            continue
        capsys.readouterr()
        exec(compile(snippet.code, snippet.place, "exec"), space)  # noqa: S102 - the project's own pages
        if snippet.output is not None:
            assert capsys.readouterr().out == snippet.output, snippet.place
            compared += 1
    return compared


@pytest.fixture
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """An empty working folder that modules are imported from, and none of the machine's settings."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delenv("TIDEMARK_STORE", raising=False)
    before = set(sys.modules)
    yield tmp_path
    for name in set(sys.modules) - before:
        if str(getattr(sys.modules[name], "__file__", "")).startswith(str(tmp_path)):
            del sys.modules[name]


@pytest.mark.spark
def test_the_first_job_does_what_its_page_says(spark: SparkSession, elsewhere: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert spark.getActiveSession() is not None, "tm.run takes the session that is there"
    assert execute(snippets(CHECKOUT / "docs/how-to/first-job.md"), {}, capsys) >= 7
    assert (elsewhere / ".tidemark" / "jobs" / "fares" / "status.json").exists()


@pytest.mark.spark
def test_the_job_of_the_readme_does_what_it_says(spark: SparkSession, elsewhere: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert spark.getActiveSession() is not None, "as above"
    assert execute(snippets(CHECKOUT / "README.md"), {}, capsys) == 1
    assert (elsewhere / "warehouse" / "late_trips").is_dir()


def test_the_picture_shows_the_first_job() -> None:
    job = next(snippet for snippet in snippets(CHECKOUT / "docs/how-to/first-job.md") if snippet.module == "first_job")
    module = ModuleType("first_job")
    exec(compile(job.code, job.place, "exec"), module.__dict__)  # noqa: S102 - as above
    timed = tuple(tuple((zone, f"{time:%H:%M}") for zone, time, _ in epoch if time is not None) for epoch in module.FARES)
    assert timed == timeline.EPOCHS
    window = module.hourly.node
    assert (window.assigner, window.allowed_lateness_ms) == (timeline.WINDOWS, timeline.LATENESS_MS)
    assert module.fares.node.watermarks.generator == timeline.GENERATOR
    assert (CHECKOUT / "docs/pictures/timeline.svg").read_text(encoding="utf-8") == timeline.draw(), "run docs/pictures/timeline.py"


@pytest.mark.usefixtures("elsewhere")
@pytest.mark.parametrize("name", ["docs/reference/jobs.md", "docs/how-to/running.md"])
def test_jobs_of_the_other_pages_can_be_defined(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    calls = pretend_to_run(monkeypatch)
    found = snippets(CHECKOUT / name)
    space: dict[str, object] = {}
    for snippet in found:
        exec(compile(snippet.code, snippet.place, "exec"), space)  # noqa: S102 - as above
    assert any(isinstance(value, tm.Job) for value in space.values())
    assert calls or not any("tm.run(" in snippet.code for snippet in found)


def pretend_to_run(monkeypatch: pytest.MonkeyPatch) -> list[inspect.BoundArguments]:
    """Let ``tm.run`` check its arguments, and run nothing."""
    calls: list[inspect.BoundArguments] = []
    signature = inspect.signature(run)

    def pretend(*positional: object, **named: object) -> None:
        calls.append(signature.bind(*positional, **named))

    monkeypatch.setattr(tm, "run", pretend, raising=False)
    return calls


@pytest.mark.dagster
@pytest.mark.filterwarnings(r"ignore:The `__fields__` attribute is deprecated")  # Dagster's, over pydantic
@pytest.mark.usefixtures("elsewhere")
def test_the_code_location_of_the_dagster_page_loads() -> None:
    import dagster as dg

    write_first_job(Path())
    space: dict[str, object] = {"__name__": "definitions"}
    for snippet in snippets(CHECKOUT / "docs/how-to/dagster.md"):
        exec(compile(snippet.code, snippet.place, "exec"), space)  # noqa: S102 - as above
    defs = space["defs"]
    assert isinstance(defs, dg.Definitions)
    dg.Definitions.validate_loadable(defs)
    made = space["fares_assets"]
    assert isinstance(made, dg.AssetsDefinition)
    assert bound_job(made.specs).job.name == "fares"


@pytest.mark.parametrize("page", PAGES, ids=[str(page.relative_to(CHECKOUT)) for page in PAGES])
def test_links_lead_somewhere(page: Path) -> None:
    assert dead_links(page, lambda path: path.exists()) == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(CHECKOUT)))
def test_no_block_is_empty(page: Path) -> None:
    assert [block[0] for block in _BLOCK.finditer(page.read_text(encoding="utf-8")) if not block[2].strip()] == []


def test_a_dead_link_is_found(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("# One\n\n[a](page.md#one) [b](gone.md) [c](#two) [d](https://example.com)\n", encoding="utf-8")
    assert dead_links(page, lambda path: path.exists()) == ["gone.md", "#two"]


def dead_links(page: Path, exists: Callable[[Path], bool]) -> list[str]:
    """Return the links of a page to files that are not there, or to headings that their page does not have."""
    dead = []
    for link in _LINK.findall(_BLOCK.sub("", page.read_text(encoding="utf-8"))):
        if re.match(r"[a-z]+:", link):
            continue
        name, _, anchor = link.partition("#")
        target = (page.parent / name).resolve() if name else page
        if not exists(target) or (anchor and anchor not in anchors(target)):
            dead.append(link)
    return dead


def anchors(page: Path) -> set[str]:
    """Return the anchors of a page's headings, as GitHub makes them."""
    headings = _HEADING.findall(_BLOCK.sub("", page.read_text(encoding="utf-8")))
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}
