"""Rules of the house that a linter does not know, or that must hold where a linter can be told to look away."""

from __future__ import annotations

import sys
from collections import Counter
from dataclasses import replace
from pathlib import Path

from tests.architecture.sources import CHECKOUT, Import, Source, all_sources, package_sources, read_source
from tidemark.crashpoints import POINTS

MOST_LINES = 400
MOST_MODULES = 15
LONG_FILES: dict[str, str] = {"tests/test_bad_input.py": "one table of bad inputs, read row by row"}
"""Path of each longer file, with the reason why it is one idea all the same."""

CLOCK = {
    "time.time", "time.time_ns", "time.monotonic", "time.monotonic_ns", "time.perf_counter", "time.perf_counter_ns", "time.sleep",
    "datetime.now", "datetime.utcnow", "datetime.today", "date.today", "datetime.datetime.now", "datetime.datetime.utcnow",
    "datetime.datetime.today", "datetime.date.today",
}  # fmt: skip
RUNS_STORED_CODE = {"pickle", "cloudpickle", "dill", "marshal", "shelve"}
DELETES = {"unlink", "rmdir", "rmtree", "removedirs", "truncate"}
DELETING_FILES: dict[str, str] = {
    "platform/tidemark/state/store/local_files.py": "the one place for stores and tables: follows no link",
    "platform/tidemark/control/launch/logs.py": "empties a log that grew too large; not one that is a link",
    "platform/tidemark/control/launch/run_folder.py": "scratch files, in a temporary folder of the user's own; rmtree follows no link",
    "platform/tidemark/control/model/standby_files.py": "as above",
    "platform/tidemark/spark/env/jvm.py": "old logs of sessions, in the user's own folder; unlink follows no link",
    "platform/tidemark/spark/sources/checkpoint.py": "old files of a log in the driver's own temporary folder; unlink follows no link",
    "platform/tidemark/spark/env/class_archive.py": "the archive that it made in the environment; rmtree follows no link",
}
"""Files of the package that delete by themselves, with the reason; all others ask ``JobStore``."""

EMPTY_NAMES = {"utils", "util", "helpers", "helper", "manager", "base", "common", "misc"}


def test_no_file_is_long_without_a_reason() -> None:
    lengths = {source.place: source.lines for source in all_sources()}
    assert {place: lines for place, lines in lengths.items() if lines > MOST_LINES and place not in LONG_FILES} == {}
    assert {place for place in LONG_FILES if lengths.get(place, 0) <= MOST_LINES} == set(), "short or gone: take them off the list"


def test_no_folder_holds_more_than_can_be_read_at_a_glance() -> None:
    modules = Counter(str(source.path.parent.relative_to(CHECKOUT)) for source in package_sources() if source.path.stem != "__init__")
    assert {folder for folder, count in modules.items() if count > MOST_MODULES} == set()


def test_only_the_clock_reads_the_clock() -> None:
    found = []
    for source in package_sources():
        found += [f"{source.place}:{use.line}: {use.name}" for use in source.attributes if use.name in CLOCK]
        found += [at(source, imported) for imported in source.imports if f"{imported.module}.{imported.name}" in CLOCK]
    assert {place for place in found if not place.startswith("platform/tidemark/clock.py:")} == set()
    assert any(place.startswith("platform/tidemark/clock.py:") for place in found), "the search no longer finds what it looks for"


def test_a_private_name_never_crosses_a_file() -> None:
    assert [place for source in all_sources() for place in private_names(source)] == []


def test_a_private_name_is_found(tmp_path: Path) -> None:
    path = tmp_path / "wrong.py"
    path.write_text("from tidemark.state import store\nimport dagster._core\nfrom tidemark.clock import _x\nstore._open()\nstore.open()\n")
    wrong = replace(read_source(path, "wrong"), path=CHECKOUT / "wrong.py")
    assert private_names(wrong) == [
        "wrong.py:2: dagster._core",
        "wrong.py:3: tidemark.clock _x",
        "wrong.py:4: store._open",
    ]


def test_nothing_stored_can_run_code() -> None:
    found = []
    for source in package_sources():
        found += [at(source, imported) for imported in source.imports if imported.module.partition(".")[0] in RUNS_STORED_CODE]
        found += [f"{source.place}:{call.line}: calls {call.name}" for call in source.calls if call.name in {"eval", "exec"}]
    assert found == []


def test_every_crash_point_is_one_that_tests_can_name() -> None:
    named = {call.argument for source in package_sources() for call in source.calls if call.name == "crash_point"}
    assert named == set(POINTS)


def test_one_place_deletes_files() -> None:
    found = set()
    for source in package_sources():
        by_os = {call for call in source.calls if call.name in {"os.remove", "obstore.delete", "obstore.delete_async"}}
        if by_os or any("." in call.name and call.last in DELETES for call in source.calls):
            found.add(source.place)
    # An object store has no links.
    assert found - {"platform/tidemark/state/store/store.py"} == set(DELETING_FILES)


def test_names_say_something() -> None:
    assert [source.place for source in package_sources() if source.path.stem in EMPTY_NAMES] == []


def test_imports_are_absolute() -> None:
    assert [at(source, imported) for source in all_sources() for imported in source.imports if imported.module.startswith(".")] == []


def test_annotations_are_not_evaluated() -> None:
    without = [
        source.place
        for source in package_sources()
        if source.has_code and ("__future__", "annotations") not in {(imported.module, imported.name) for imported in source.imports}
    ]
    assert without == []


def test_every_folder_of_the_package_is_a_package() -> None:
    assert [folder for folder in {source.path.parent for source in package_sources()} if not (folder / "__init__.py").exists()] == []
    assert not (CHECKOUT / "platform" / "__init__.py").exists(), "a package called platform would hide the standard library's"


def private_names(source: Source) -> list[str]:
    """Return private names of other files that a file uses; those of the standard library are documented, such as ``sys._getframe``."""
    others = [imported for imported in source.imports if imported.module.partition(".")[0] not in sys.stdlib_module_names]
    found = [at(source, imported) for imported in others if any(map(is_private, (*imported.module.split("."), imported.name or "")))]
    modules = {imported.name or imported.module for imported in others}
    for use in source.attributes:
        on, _, name = use.name.rpartition(".")
        if on in modules and is_private(name):
            found.append(f"{source.place}:{use.line}: {use.name}")
    return found


def at(source: Source, imported: Import) -> str:
    return f"{source.place}:{imported.line}: {imported.module}{f' {imported.name}' if imported.name else ''}"


def is_private(name: str) -> bool:
    return name.startswith("_") and not name.startswith("__")
