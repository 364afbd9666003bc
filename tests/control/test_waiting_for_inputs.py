"""An input is visible once the first epoch that has it behind it is published."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

import tidemark as tm
from tests.control.read_jobs import Read, kafka
from tests.savepoints.stored_jobs import store_in_memory
from tidemark.cli.program.main import main
from tidemark.control.client.completion import Input, InputWatch
from tidemark.errors import DefinitionError, NotReachedError, UnknownJobError
from tidemark.state.store.store import JobStore
from tidemark.testing.manual_clock import ManualClock


@pytest.fixture
def read() -> Read:
    return Read(store_in_memory())


def test_a_record_of_kafka_is_behind_the_offset_that_is_read_next(read: Read) -> None:
    assert read.stored.driver.last is None
    assert not read.is_visible("kafka:rides:0:0")
    read.publish(read.commit(kafka(p0=5, p1=0)))
    seen = {text: read.is_visible(f"kafka:{text}") for text in ("rides:0:4", "rides:0:5", "rides:1:0", "rides:2:0", "fares:0:0")}
    assert seen == {"rides:0:4": True, "rides:0:5": False, "rides:1:0": False, "rides:2:0": False, "fares:0:0": False}


def test_what_is_committed_is_visible_only_when_it_is_published(read: Read) -> None:
    first = read.commit(kafka(p0=5))
    assert not read.is_visible("epoch:0")
    read.publish(first)
    second = read.commit(kafka(p0=9))
    assert (read.is_visible("kafka:rides:0:4"), read.is_visible("kafka:rides:0:5")) == (True, False)
    assert (read.is_visible("epoch:0"), read.is_visible("epoch:1")) == (True, False)
    read.publish(second)
    assert (read.is_visible("kafka:rides:0:8"), read.is_visible("epoch:1")) == (True, True)


def test_every_source_that_reads_it_has_to_have_it_behind_it(read: Read) -> None:
    offsets = {"one": {"rides": {"0": 9}}, "other": {"rides": {"0": 3}}, "files": {"logOffset": 4}}
    read.publish(read.commit(offsets))
    found = InputWatch(read.root, "taxi").look(Input.parse("kafka:rides:0:5"))
    assert (dict(found.sources), found.is_visible) == ({"one": True, "other": False}, False)
    assert found.missing == "source 'other' has not read it by epoch 0"
    assert read.is_visible("kafka:rides:0:5", source="one")


def test_files_by_their_addresses(read: Read, tmp_path: Path) -> None:
    folder = tmp_path / "in dir"
    logs = {
        "landing": {
            f"file://{tmp_path}/in%20dir/1.json": 0,
            f"file:{tmp_path}/in%20dir/2.json": 1,
            f"file://{tmp_path}/in%20dir/3.json": 2,
        },
        "lake": {"s3a://lake/rides/1.parquet": 0},
    }
    read.publish(read.commit({"landing": {"logOffset": 1}, "lake": {"logOffset": 0}}, logs))
    assert read.is_visible(f"file:{folder}/1.json")
    assert read.is_visible(f"file://{folder}/2.json")
    assert not read.is_visible(f"file:{folder}/3.json"), "it is planned, and behind the offset"
    assert read.is_visible("file:s3://lake/rides/1.parquet")
    missing = InputWatch(read.root, "taxi").look(Input.parse(f"file:{tmp_path}/elsewhere/1.json"))
    assert missing.missing == "no source has read its topic or folder by epoch 0"


@pytest.mark.parametrize(
    "text", ["", "epoch:", "epoch:-1", "epoch:x", "file:", "kafka:rides:0", "kafka::0:1", "kafka:rides:0:x", "s3://b/x"]
)
def test_what_names_no_input(text: str) -> None:
    with pytest.raises(DefinitionError, match="names no input"):
        Input.parse(text)


def test_names_that_the_job_does_not_have(read: Read) -> None:
    read.publish(read.commit(kafka(p0=1)))
    for names, says in (({"source": "ride"}, "no source 'ride'"), ({"output": "rows"}, "no output 'rows'")):
        with pytest.raises(DefinitionError, match=says):
            read.is_visible("epoch:0", **names)
    with pytest.raises(UnknownJobError, match="there is no job 'tax'"):
        InputWatch(read.root, "tax").look(Input.parse("epoch:0"))


def test_waiting_ends_when_it_is_published_or_the_time_is_over(read: Read) -> None:
    clock = ManualClock(0)
    watch, said = InputWatch(read.root, "taxi", clock=clock), list[str]()
    read.publish(read.commit(kafka(p0=1)))
    with pytest.raises(NotReachedError, match="after 2s: source 'rides' has not read it by epoch 0"):
        watch.wait(Input.parse("kafka:rides:0:1"), timeout_ms=2_000)

    def publish(found: tm.Completion) -> None:
        said.append(found.missing)
        read.publish(read.commit(kafka(p0=2)))

    found = watch.wait(Input.parse("kafka:rides:0:1"), timeout_ms=2_000, on_progress=publish)
    assert (found.epoch, found.is_visible) == (1, True)
    assert said == ["source 'rides' has not read it by epoch 0"]


def test_the_command_and_the_function(tmp_path: Path) -> None:
    read = Read(JobStore.open(str(tmp_path / "store")))
    read.publish(read.commit(kafka(p0=7)))
    command = ["wait", "taxi", "--store", str(tmp_path / "store"), "--timeout", "0 seconds"]
    done = CliRunner().invoke(main, [*command, "--for", "kafka:rides:0:6", "--for", "epoch:0"])
    assert (done.exit_code, done.output) == (
        0,
        "kafka:rides:0:6 is visible: epoch 0 of taxi is published\nepoch:0 is visible: epoch 0 of taxi is published\n",
    )
    late = CliRunner().invoke(main, [*command, "--for", "kafka:rides:0:7"])
    assert late.exit_code == 75
    assert "TM416" in late.output
    told = CliRunner().invoke(main, [*command, "--for", "epoch:0", "--json"])
    assert json.loads(told.output)["visible"] is True
    assert tm.wait_for("taxi", "epoch:0", store=str(tmp_path / "store"), timeout="1 second").epoch == 0
