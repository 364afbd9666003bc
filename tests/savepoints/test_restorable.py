"""Until when a savepoint can be restored: by the files and tables that its sources still have."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest
from click.testing import CliRunner
from deltalake import DeltaTable, write_deltalake
from hypothesis import given
from hypothesis import strategies as st

import tidemark as tm
from tests.savepoints.delta_jobs import job_with_tables, run_epoch
from tests.savepoints.stored_jobs import StoredJob
from tidemark.cli.program.main import main
from tidemark.graph.model.nodes import SourceNode
from tidemark.graph.model.source_specs import SourceSpec
from tidemark.savepoints.core import expiry, source_files
from tidemark.savepoints.core.expiry import Expiry, ReadFile, Restorable, files_expiry
from tidemark.savepoints.core.retention import DAY_MS
from tidemark.savepoints.core.source_files import FileExistence
from tidemark.savepoints.model.restore import Restore
from tidemark.savepoints.model.source_kinds import source_status
from tidemark.state.log.records import EpochRecord, SourceLogFile, SourceLogRef
from tidemark.state.status.status import JobStatus, SourceStatus, write_status
from tidemark.state.store.store import JobStore

NOW = 1_800_000_000_000
NOTHING = object()
"""The position of a source that has read nothing."""


class World:
    """A job on disk whose source ``trips`` reads the files of a folder, a few in each epoch."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.landing = folder / "landing zone"
        self.landing.mkdir()
        self.job = StoredJob(JobStore.open(str(folder / "store")))
        self.job.clock.set(NOW)
        self.lines: list[str] = []
        self.read = 0
        self.suffix = ""

    def arrive(self, name: str, *, days_ago: float) -> Path:
        """Let a file arrive, and an epoch read it."""
        path, at = self.landing / name, NOW - round(days_ago * DAY_MS)
        path.parent.mkdir(exist_ok=True)
        path.write_text("{}")
        os.utime(path, (at / 1000, at / 1000))
        self.lines.append(json.dumps({"path": path.as_uri(), "timestamp": at, "batchId": self.read}))
        log = "\n".join(["v1", *self.lines]).encode()
        kept = SourceLogFile(f"{self.read}.compact", f"sources/trips/{self.read}{self.suffix}", len(log), hashlib.sha256(log).hexdigest())
        self.job.folder.put(kept.path, log)
        self.commit({"trips": {"logOffset": self.read}}, {"trips": SourceLogRef((kept,))})
        self.read += 1
        return path

    def commit(self, offsets: Mapping[str, object], logs: Mapping[str, SourceLogRef] | None = None) -> EpochRecord:
        last = self.job.driver.last or self.job.commit()
        text = "\n".join(
            [
                'v2\n{"batchWatermarkMs":0}',
                *(f"{name}:{'-' if offset is NOTHING else json.dumps(offset)}" for name, offset in offsets.items()),
            ]
        )
        made = replace(last, epoch=last.epoch + 1, offsets=text, source_logs=logs or {})
        made = replace(made, progress=replace(made.progress, epoch=made.epoch))
        self.job.driver.append(made)
        return made

    def say(self, **sources: SourceStatus) -> None:
        """Write the status as a driver with such sources does."""
        write_status(self.job.root, JobStatus("taxi", "a1", "running", NOW, NOW, sources=sources))

    def restorable(self, name: str) -> Restorable:
        savepoints = self.job.savepoints
        (found,) = savepoints.restorable(savepoints.get(name))
        return found

    def limit(self, name: str) -> Expiry:
        (found,) = self.restorable(name).limits
        return found

    def call(self, *arguments: str) -> str:
        result = CliRunner().invoke(main, [*arguments, "--store", str(self.folder / "store")])
        assert result.exit_code == 0, result.output
        return result.stdout


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


def test_as_long_as_all_files_are_there_no_end_is_known(world: World) -> None:
    world.arrive("a b.json", days_ago=9)
    world.job.savepoints.take("a")
    assert str(world.limit("a")) == "source trips: no file that was read was deleted"
    world.arrive("c.json", days_ago=1)
    assert world.restorable("a").until is None
    assert not world.restorable("a").lost


def test_how_long_files_are_kept_is_seen_by_those_that_are_gone(world: World) -> None:
    paths = [world.arrive(f"day={days}/a.json", days_ago=days) for days in range(20, 0, -1)]
    world.job.savepoints.take("now")
    world.job.savepoints.take("before", epoch=18)
    for path in paths[:13]:  # those older than 7 days, with the folders that they lay in
        path.unlink()
        path.parent.rmdir()
    now = world.limit("now")
    assert (now.state, now.why, now.until) == ("kept", "files are kept 7d; older ones were deleted", NOW + 7 * DAY_MS)
    # Two files were read since epoch 18; the first of them came two days ago.
    assert world.limit("before").until == NOW + 5 * DAY_MS
    world.job.savepoints.take("long-ago", epoch=10)
    lost = world.limit("long-ago")
    assert (lost.state, lost.why, lost.until) == ("lost", "3 of the 10 files that were read since were deleted, such as a.json", None)
    assert world.restorable("long-ago").lost == (lost,)


def test_what_a_source_reads_first_is_needed_by_a_savepoint_from_before_it_read(world: World) -> None:
    world.commit({"trips": NOTHING})
    world.job.savepoints.take("a")
    assert world.limit("a").state == "unknown", "nobody has said yet that it consists of files"
    world.say(trips=SourceStatus("files"))
    assert world.limit("a").why == "no file was read yet"
    world.arrive("a.json", days_ago=1).unlink()
    assert world.limit("a").why == "1 of the 1 files that were read since were deleted, such as a.json"


def test_a_source_that_deletes_what_it_has_read_keeps_nothing(world: World) -> None:
    for number in range(3):
        world.arrive(f"{number}.json", days_ago=1).unlink()
    world.job.savepoints.take("now")
    assert (world.limit("now").why, world.limit("now").until) == ("files are deleted once they are read", NOW)
    world.arrive("4.json", days_ago=0).unlink()
    assert world.limit("now").state == "lost"


def test_what_another_lineage_has_read_since_counts_too(world: World) -> None:
    world.arrive("a.json", days_ago=3)
    world.job.savepoints.take("a")
    world.arrive("b.json", days_ago=2)
    world.job.savepoints.take("b")
    # Put back, and other files are read under the same numbers.
    before = world.job.driver.last
    after = world.job.restore(Restore("a"))
    assert before is not None
    assert after.lineage != before.lineage
    world.read, world.lines, world.suffix = 1, world.lines[:1], "-again"
    world.arrive("c.json", days_ago=1).unlink()
    for name in ("a", "b"):
        assert world.limit(name).why == "1 of the 1 files that were read since were deleted, such as c.json", name
    (world.landing / "a.json").unlink()
    assert world.limit("b").state == "lost"


def test_only_the_oldest_of_many_are_looked_at(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(expiry, "MAX_CHECKED_FILES", 2)
    world.arrive("a.json", days_ago=9)
    world.job.savepoints.take("a")
    for number in range(5):
        path = world.arrive(f"b-{number}.json", days_ago=8 - number)
        if number == 1:
            path.unlink()
    assert world.limit("a").why == "1 of the 2 oldest of 5 files that were read since were deleted, such as b-1.json"


def test_what_cannot_be_looked_at_is_unknown(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    world.arrive("a.json", days_ago=9).unlink()
    world.job.savepoints.take("a")
    with monkeypatch.context() as patched:
        patched.setattr(source_files, "MAX_BYTES", 10)
        assert "too long to be read" in world.limit("a").why
    world.landing.rmdir()
    assert (world.limit("a").state, world.limit("a").until) == ("unknown", None)
    assert world.limit("a").why == f"their folder {world.landing} does not exist on this machine"
    for text in (b"v1\nnonsense", b'v1\n{"path": "file:///a"}'):
        world.job.folder.put("sources/trips/0", text)
        assert "the copy of its log" in world.limit("a").why
    world.job.folder.delete(["sources/trips/0"])
    assert world.limit("a").state == "unknown"
    elsewhere = SourceLogFile("1", "sources/trips/1", 1, "")
    world.job.folder.put(elsewhere.path, b'v1\n{"path": "hdfs://nn/a", "timestamp": 1, "batchId": 1}')
    world.commit({"trips": {"logOffset": 1}}, {"trips": SourceLogRef((elsewhere,))})
    world.job.savepoints.take("b")
    assert world.limit("b").why == "a location of kind 'hdfs' cannot be used"


def test_files_of_an_object_store_are_looked_at_by_their_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    class Bucket:
        def exists(self, key: str) -> bool:
            asked.append(key)
            return key != "landing/day 1/b.json"

    monkeypatch.setattr(JobStore, "open", lambda location: Bucket() if str(location) == "s3://lake" else pytest.fail(str(location)))
    looks = FileExistence()
    addresses = [f"s3a://lake/landing/day%201/{name}.json" for name in ("a", "b", "a")]
    assert looks(addresses) == [True, False, True]
    assert looks(addresses[1:]) == [False, True]
    assert sorted(asked) == ["landing/day 1/a.json", "landing/day 1/b.json"]


@pytest.mark.parametrize(
    ("kind", "offset", "state", "why"),
    [
        (SourceStatus("kafka"), {"rides": {"0": 7}}, "unknown", "how long kafka keeps its input is not known here"),
        (None, {"rides": {"0": 7}}, "unknown", "how long it keeps its input is not known here"),
        (SourceStatus("rate"), 7, "kept", "its rows are generated again"),
        (SourceStatus("delta"), {"reservoirVersion": 7, "reservoirId": "x"}, "unknown", "how long delta keeps its input is not known here"),
    ],
)
def test_other_sources_say_what_is_known_of_them(world: World, kind: SourceStatus | None, offset: object, state: str, why: str) -> None:
    world.commit({"rides": offset})
    world.job.savepoints.take("a")
    if kind is not None:
        world.say(rides=kind)
    assert (world.limit("a").state, world.limit("a").why, world.limit("a").until) == (state, why, None)


def test_a_table_that_is_read_keeps_its_versions_by_its_settings(world: World) -> None:
    path = str(world.folder / "zones")
    for number in range(3):
        write_deltalake(
            path,
            pa.table({"zone": [number]}),
            mode="append",
            configuration={"delta.deletedFileRetentionDuration": "interval 2 days", "delta.logRetentionDuration": "interval 5 days"},
        )
    table = DeltaTable(path)
    written = {int(entry["version"]): int(entry["timestamp"]) for entry in table.history()}
    for version, name in ((3, "newest"), (1, "behind")):
        offset = {"sourceVersion": 1, "reservoirId": str(table.metadata().id), "reservoirVersion": version, "index": -1}
        world.commit({"zones": offset})
        world.job.savepoints.take(name)
    world.say(zones=SourceStatus("delta", path))
    assert world.limit("newest") == Expiry("input", "zones", "kept", "its table keeps removed files for 2d", NOW + 2 * DAY_MS)
    assert world.limit("behind").until == written[1] + 2 * DAY_MS
    DeltaTable(path).create_checkpoint()
    for version in (0, 1):
        Path(path, "_delta_log", f"{version:020d}.json").unlink()
    assert world.limit("behind").state == "lost"
    assert world.limit("behind").why == "version 1 of its table, which comes next, was deleted from the table's log"
    world.say(zones=SourceStatus("delta", str(world.folder / "nowhere")))
    assert (world.limit("newest").state, world.limit("newest").why) == ("lost", f"there is no table at {world.folder / 'nowhere'}")
    world.say(zones=SourceStatus("delta", str(world.folder / "elsewhere" / "zones")))
    assert (world.limit("newest").state, world.limit("newest").why.rpartition(", ")[2]) == ("unknown", "as seen from here")
    other = str(world.folder / "other")
    write_deltalake(other, pa.table({"zone": [1]}))
    world.say(zones=SourceStatus("delta", other))
    assert world.limit("newest").why == f"the table at {other} is not the one that it has read"


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        (tm.files("landing", format="text"), SourceStatus("files")),
        (tm.from_elements([(1,)], schema="a INT"), SourceStatus("elements")),
        (tm.rate(rows_per_second=1), SourceStatus("rate")),
        (tm.streaming_format("Kafka", options={"kafka.sasl.jaas.config": "secret"}), SourceStatus("kafka")),
        (tm.streaming_format("delta", options={"PATH": "s3a://lake/zones"}), SourceStatus("delta", "s3://lake/zones")),
        (tm.streaming_format("delta", options={"path": "dbfs:/zones/*"}), SourceStatus("delta")),
        (tm.streaming_format("delta"), SourceStatus("delta")),
    ],
)
def test_a_driver_notes_no_more_of_a_source_than_its_kind_and_its_table(spec: SourceSpec, expected: SourceStatus) -> None:
    node = tm.source("s", spec, watermarks=tm.ingestion_time()).node
    assert isinstance(node, SourceNode)
    assert source_status(node) == expected


def test_commands_show_it_with_the_reason(tmp_path: Path) -> None:
    job = job_with_tables(tmp_path)
    run_epoch(job)
    job.driver.release()
    taken = job.savepoints.take("a")
    (found,) = job.savepoints.restorable(taken)
    assert {limit.name for limit in found.limits if limit.what == "table"} == {"hourly", "late"}
    assert found.until == min(table.until for table in taken.info.tables.values() if table.until is not None)


def test_commands_say_when_it_is_no_longer_restorable(world: World) -> None:
    world.arrive("a.json", days_ago=2)
    world.job.savepoints.take("a")
    assert "restorable, with no known end\n    source trips: no file that was read was deleted" in world.call(
        "savepoint", "show", "taxi", "a"
    )
    world.arrive("b.json", days_ago=1).unlink()
    (plain,) = map(json.loads, world.call("savepoint", "list", "taxi", "--json").splitlines())
    assert (plain["restorable"], plain["restorable_until"]) == (False, None)
    assert plain["limits"][0]["why"] == "1 of the 1 files that were read since were deleted, such as b.json"
    header, row = world.call("savepoint", "list", "taxi").splitlines()
    assert row[header.index("restorable until") :].split("  ")[0] == "no longer"
    assert "  no longer restorable without loss\n" in world.call("savepoint", "show", "taxi", "a")


@given(
    ages=st.lists(st.integers(1, 1000), min_size=1, max_size=40, unique=True),
    read=st.integers(0, 40),
    kept=st.integers(0, 1000),
)
def test_a_rule_that_deletes_by_age_is_found(ages: Sequence[int], read: int, kept: int) -> None:
    """Whatever is deleted by age: what is said to be lost is gone, and what is said to be kept is there until then by the rule."""
    seen = [ReadFile(f"file:///{age}", 10_000 - age) for age in sorted(ages, reverse=True)]
    there = {file.address: 10_000 - file.at <= kept for file in seen}
    since = seen[read:]
    found = files_expiry("s", seen, {file.address for file in seen[:read]}, lambda some: [there[item] for item in some], now_ms=10_000)
    gone = [file for file in since if not there[file.address]]
    assert (found.state == "lost") == bool(gone)
    if found.state == "kept":
        first = since[0].at if since else 10_000
        assert (found.until is None) == all(there.values())
        assert found.until is None or 10_000 <= found.until <= max(10_000, first + kept)
