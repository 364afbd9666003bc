"""The one line of an error that Spark or the system below it caused: the cause stands in it, and what mends it."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

import tidemark as tm
from tests.small_disk import fill, let_write, small_disk
from tidemark.errors import EngineError, PublishError, SinkError, StoreError
from tidemark.graph.model.nodes import walk
from tidemark.savepoints.delta.table_versions import commits_back, open_table
from tidemark.spark.columns.origins import origin_of_expression
from tidemark.spark.loop.error_translation import translate
from tidemark.spark.sinks.delta.delta_sink import DeltaSink
from tidemark.state.log.records import OutputRecord, StagedFile
from tidemark.state.store.object_stores import error_line, remedy
from tidemark.state.store.store import JobStore

SCHEMA = '{"type":"struct","fields":[{"name":"n","type":"long","nullable":true,"metadata":{}}]}'
JAVA = """Job aborted due to stage failure: Task 0 in stage 3.0 failed 1 times
\tat org.apache.spark.scheduler.DAGScheduler.failJobAndIndependentStages(DAGScheduler.scala:2844)
Caused by: org.apache.kafka.common.KafkaException: Failed to construct kafka consumer
\tat org.apache.kafka.clients.consumer.KafkaConsumer.<init>(KafkaConsumer.java:664)
Caused by: {cause}
\t... 3 more
"""


@pytest.mark.parametrize(
    ("cause", "what", "fix"),
    [
        ("java.io.IOException: No space left on device", "there is no space left on the disk", "free space there"),
        ("java.io.IOException: Disk quota exceeded", "the disk quota is used up", "raise the quota"),
        ("java.io.FileNotFoundException: /x (Too many open files)", "too many files are open", "`ulimit -n`"),
        ("java.io.FileNotFoundException: /x (Read-only file system)", "the file system is read-only", "mount it writable"),
        ("java.io.FileNotFoundException: /x (Permission denied)", "permission is denied", "let the user of the process read and write"),
        ("java.io.IOException: Input/output error", "the disk does not read or write", "check the disk"),
        ("java.lang.OutOfMemoryError: Java heap space", "Java is out of memory (Java heap space)", "spark.driver.memory"),
        (
            "org.apache.spark.SparkException: Python worker exited unexpectedly (crashed)",
            "a Python worker has ended",
            "spark.driver.memory",
        ),
        (
            "java.lang.IllegalArgumentException: Could not find a 'KafkaClient' entry in the JAAS configuration. The property is not set",
            "the login to Kafka is not configured (Could not find a 'KafkaClient' entry in the JAAS configuration)",
            "'kafka.sasl.jaas.config'",
        ),
        (
            "org.apache.kafka.common.errors.SaslAuthenticationException: Authentication failed: Invalid username",
            "Kafka refuses the login (Authentication failed: Invalid username)",
            "correct user, password or certificate",
        ),
        ("java.net.UnknownHostException: kafka-1.example", "a host name does not resolve (kafka-1.example)", "'kafka.bootstrap.servers'"),
        (
            "org.apache.kafka.common.config.ConfigException: No resolvable bootstrap urls given in bootstrap.servers",
            "a host name does not resolve",
            "'kafka.bootstrap.servers'",
        ),
        ("java.net.ConnectException: Connection refused", "no service answers at the address", "check that the service runs"),
    ],
)
def test_the_cause_of_a_failed_epoch_stands_in_its_one_line(cause: str, what: str, fix: str) -> None:
    for error in (RuntimeError(JAVA.format(cause=cause)), behind(cause)):
        found = translate(error, job="fares", epoch=3, state="/x/state")
        assert isinstance(found, EngineError)
        line = str(found)
        assert line.startswith("[TM502] the epoch failed: " + what)
        assert fix in line.partition("Fix: ")[2]
        assert "\n" not in line


def behind(cause: str) -> RuntimeError:
    """Return an error whose trace PySpark keeps beside its text, as it does for Java's."""
    error = RuntimeError("Job aborted due to stage failure")
    error._stackTrace = JAVA.format(cause=cause)  # type: ignore[attr-defined]  # noqa: SLF001 - PySpark's
    return error


def test_an_unknown_cause_is_named_and_no_credential_of_it() -> None:
    cause = "com.acme.OddException: the flux is out of phase, password=hunter2"
    line = str(translate(RuntimeError(JAVA.format(cause=cause)), job="fares", epoch=3, state="/x/state"))
    assert "(com.acme.OddException: the flux is out of phase, password=<hidden>)" in line
    assert "hunter2" not in line


@pytest.mark.parametrize(
    ("number", "what"),
    [
        (errno.ENOSPC, "there is no space left on the disk"),
        (errno.EDQUOT, "the disk quota is used up"),
        (errno.EROFS, "the file system is read-only"),
        (errno.EACCES, "permission is denied"),
        (errno.EMFILE, "too many files are open"),
        (errno.ENFILE, "too many files are open"),
        (errno.EIO, "the disk does not read or write"),
    ],
)
def test_what_the_system_refuses_is_named_with_what_mends_it(number: int, what: str) -> None:
    for error in (OSError(number, os.strerror(number)), ValueError(f"Generic error: it failed (os error {number})\n\nDebug source: x")):
        assert error_line(error).startswith(what)
        assert remedy(error, "file") != remedy(OSError("odd"), "file")


def test_a_full_disk_and_one_that_is_read_only_are_named_by_the_job_store(tmp_path: Path) -> None:
    with small_disk(tmp_path / "disk", 256):
        store = JobStore.open(str(tmp_path / "disk" / "jobs"))
        fill(tmp_path / "disk")
        with pytest.raises(StoreError, match=r"\[TM400\] cannot write .* there is no space left on the disk .* Fix: free space there"):
            store.put("fares/x", bytes(9_000))
        let_write(tmp_path / "disk", allowed=False)
        with pytest.raises(StoreError, match=r"the file system is read-only .* Fix: mount it writable"):
            store.put("fares/y", b"x")


def test_the_damaged_entry_of_a_table_s_log_is_named(tmp_path: Path) -> None:
    place = str(tmp_path / "rows")
    for number in range(3):
        write_deltalake(place, pa.table({"n": [number]}), mode="append")
    sink = DeltaSink("rows", place)
    sink.visible_files()
    entry = Path(place, "_delta_log", f"{2:020}.json")
    entry.write_bytes(entry.read_bytes()[:-40])
    for look in (DeltaSink("rows", place).visible_files, lambda: open_table("rows", place)):
        with pytest.raises(SinkError) as raised:
            look()
        line = str(raised.value)
        assert f"entry {entry.name} of its log is damaged" in line
        assert str(entry) in line
        assert "Fix: restore that file from a backup" in line
    record = OutputRecord("delta", place, SCHEMA, (StagedFile("tidemark-x/part-0.parquet", 1, 1),), 1)
    whole = entry.read_bytes()
    with pytest.raises((PublishError, SinkError), match=f"entry {entry.name} of its log is damaged"):
        DeltaSink("rows", place).publish(record, "l1", 0)
    assert entry.read_bytes() == whole


def test_an_entry_without_content_is_named_instead_of_read_as_no_change(tmp_path: Path) -> None:
    """The library below takes it for a version that changes nothing, so that its rows would be missing without a word."""
    place = str(tmp_path / "rows")
    for number in range(4):
        write_deltalake(place, pa.table({"n": [number]}), mode="append")
    running = DeltaSink("rows", place, job="fares")
    running.require_whole()
    for version in (3, 1):
        entry = Path(place, "_delta_log", f"{version:020}.json")
        whole = entry.read_bytes()
        for content in (b"", b"\n"):
            entry.write_bytes(content)
            looks: list[Callable[[], object]] = [DeltaSink("rows", place).visible_files, lambda: open_table("rows", place)]
            looks += [running.require_whole] if version == 3 else [lambda: list(commits_back(place, 3))]
            for look in looks:
                with pytest.raises(SinkError, match=r"\[TM300\].*Fix: restore that file from a backup") as raised:
                    look()
                assert f"entry {entry.name} of its log is damaged" in str(raised.value)
                assert str(entry) in str(raised.value)
        entry.write_bytes(whole)
    # One that comes while the job runs.
    Path(place, "_delta_log", f"{4:020}.json").touch()
    with pytest.raises(SinkError, match=r"entry 0{19}4.json of its log is damaged \(job 'fares', 'rows'"):
        running.require_whole()


def test_entries_behind_a_checkpoint_are_not_needed(tmp_path: Path) -> None:
    place = str(tmp_path / "rows")
    for number in range(3):
        write_deltalake(place, pa.table({"n": [number]}), mode="append")
    DeltaTable(place).create_checkpoint()
    Path(place, "_delta_log", f"{1:020}.json").write_bytes(b"")
    write_deltalake(place, pa.table({"n": [3]}), mode="append")
    for last in (True, False):
        table = open_table("rows", place)
        assert table is not None
        assert sorted(table.to_pyarrow_table()["n"].to_pylist()) == [0, 1, 2, 3]
        if last:
            Path(place, "_delta_log", "_last_checkpoint").unlink()


OVERFLOW = "[ARITHMETIC_OVERFLOW] overflow. Use 'try_add' to tolerate overflow and return NULL instead. SQLSTATE: 22003"


def test_an_overflow_without_sql_names_the_sums_that_may_have_made_it() -> None:
    given = tm.from_elements([], schema="zone INT, at TIMESTAMP, n BIGINT")
    keyed = tm.source("rides", given, watermarks=tm.ascending(timestamp="at")).key_by("zone")
    sums = keyed.running_aggregate(total=tm.sum("n"), most=tm.max("n")).uid("so-far")
    found = origin_of_expression(OVERFLOW, list(walk([sums.node])))
    assert (found.what, found.uid) == ("aggregate 'total' = 'n'", "so-far")
    assert (found.place or "").startswith(__file__)
    hourly = keyed.window(tm.tumbling("1 hour")).aggregate(hour=tm.sum("n")).uid("hourly")
    both = origin_of_expression(OVERFLOW, [*walk([sums.node]), hourly.node])
    assert "aggregate 'total' = 'n' at" in both.what
    assert "aggregate 'hour' = 'n' at" in both.what
    assert both.uid is None
    assert origin_of_expression(OVERFLOW.replace("ARITHMETIC_OVERFLOW", "DIVIDE_BY_ZERO"), list(walk([sums.node]))).what == ""


def test_an_operation_that_is_none_names_the_argument_and_its_line() -> None:
    given = tm.from_elements([], schema="id INT, at TIMESTAMP, op STRING")
    changes = tm.source("rows", given, watermarks=tm.ascending(timestamp="at")).as_changelog(["id"], operation="op")
    raised = Exception('[USER_RAISED_EXCEPTION] as_changelog: {"operation":"a"} is none of insert, delete SQLSTATE: P0001')
    error = translate(raised, job="j", epoch=0, state="/none", nodes=list(walk([changes.node])))
    assert "a row has an operation that is none" in error.what
    assert "in as_changelog operation 'op'" in error.what
    assert error.fix.startswith("let operation= be one of these")
    assert (error.place or "").startswith(__file__)
