"""Java's archive of Spark's classes: found where it is, harmless where it is stale, never half-written."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner

from tidemark.cli.program.main import main
from tidemark.errors import SetupError
from tidemark.spark.env import class_archive
from tidemark.spark.env.class_archive import archive_options, archive_path, make_archive
from tidemark.spark.env.java import ensure_java

_START = """
import sys
from tidemark.spark.env.session import build_session
from tidemark.spark.env.start.session_settings import local_settings
from tidemark.spark.env.start_errors import JAVA_OPTIONS
build_session("local[1]", conf={JAVA_OPTIONS: local_settings()[JAVA_OPTIONS] + " -Xlog:class+load:file=" + sys.argv[1]}).stop()
"""


@pytest.fixture
def environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """An environment of its own, in a folder whose name has a space."""
    prefix = tmp_path / "an environment"
    monkeypatch.setattr(sys, "prefix", str(prefix))
    archive_path.cache_clear()
    yield prefix
    archive_path.cache_clear()


def test_there_are_no_options_without_an_archive(environment: Path) -> None:
    assert archive_options() == ""
    path = archive_path(ensure_java())
    assert path.is_relative_to(environment)
    path.parent.mkdir(parents=True)
    path.write_bytes(b"")
    assert f'-XX:SharedArchiveFile="{path}"' in archive_options()


def test_another_java_has_another_archive(tmp_path: Path) -> None:
    homes = [tmp_path / "one", tmp_path / "two"]
    for number, home in enumerate(homes):
        home.mkdir()
        (home / "release").write_text(f'JAVA_VERSION="17.0.{number}"\n')
    assert len({archive_path(str(home)) for home in [*homes, tmp_path / "has no release"]}) == 3


@pytest.mark.usefixtures("environment")
def test_java_starts_without_a_word_where_an_archive_is_damaged() -> None:
    home = ensure_java()
    path = archive_path(home)
    path.parent.mkdir(parents=True)
    path.write_bytes(b"no archive at all")
    program, options = str(Path(home, "bin", "java")), shlex.split(archive_options())
    assert len(options) == 3
    done = subprocess.run([program, *options, "-version"], capture_output=True, text=True, check=True)
    assert (done.stdout, "version" in done.stderr, "rror" in done.stderr) == ("", True, False)


def test_nothing_is_left_of_an_archive_that_could_not_be_made(environment: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(class_archive, "TRAINING", "no_such_module")
    with pytest.raises(SetupError, match="No module named no_such_module"):
        make_archive()
    assert not any((environment / "share" / "tidemark").iterdir())
    said = CliRunner().invoke(main, ["class-archive", "--remove"])
    assert said.output == "There is no archive for this Java and PySpark.\n"


def test_what_a_killed_one_left_is_swept_and_what_another_is_making_stays(environment: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(class_archive, "TRAINING", "no_such_module")
    folder = environment / "share" / "tidemark"
    old, new = folder / ".making-old", folder / ".making-new"
    for left in (old, new):
        left.mkdir(parents=True)
    os.utime(old, (0, 0))
    with pytest.raises(SetupError):
        make_archive()
    assert [path.name for path in folder.iterdir()] == [new.name]


def test_a_place_that_cannot_be_written_is_said(environment: Path) -> None:
    environment.parent.mkdir(exist_ok=True)
    environment.write_text("a file where a folder should be")
    with pytest.raises(SetupError, match="cannot be written"):
        make_archive()


@pytest.mark.spark
def test_a_session_loads_most_classes_from_it(tmp_path: Path) -> None:
    if not archive_options():
        pytest.skip("there is no archive here: make .venv/.class-archive")
    log = tmp_path / "classes.log"
    subprocess.run([sys.executable, "-c", _START, str(log)], check=True, capture_output=True)
    loaded = [line for line in log.read_text(encoding="utf-8").splitlines() if "source: " in line]
    archived = sum("shared objects file" in line for line in loaded)
    assert archived > 0.7 * len(loaded), f"{archived} of {len(loaded)}"
