"""What a driver does beside its epochs, without Spark: how often it sweeps and retires, and that its failures stop nothing."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest
from click.testing import CliRunner

import tidemark as tm
from tidemark.cli.program.main import main
from tidemark.cli.show.tables import progress_lines
from tidemark.clock import format_ms
from tidemark.crashpoints import reached
from tidemark.errors import FencedError
from tidemark.spark.loop.housekeeping import RETENTION_SLACK, SWEEP_EPOCHS, SWEEP_INTERVAL_MS, Housekeeping
from tidemark.spark.loop.recovery import Recovery
from tidemark.spark.sinks.delta.delta_sink import DeltaSink
from tidemark.spark.sinks.sinks import BoundSink
from tidemark.state.gc.file_references import FileReference, FileReferences
from tidemark.state.gc.pins import Pins
from tidemark.state.log.joblog import Driver, JobLog
from tidemark.state.log.process_identity import current_owner
from tidemark.state.log.progress import EpochProgress
from tidemark.state.log.records import EpochRecord
from tidemark.state.status.deferred_work import LOGGED_AGAIN_MS
from tidemark.state.status.history import read_history
from tidemark.state.status.status import JobStatus, State, read_status
from tidemark.state.store.store import JobStore
from tidemark.testing.manual_clock import ManualClock

LINEAGE = "0123456789abcdef"
SECOND = 1000
STATES: tuple[State, ...] = ("running", "finished", "stopped", "failed")


class Office:
    """A driver that commits empty epochs, and its housekeeping."""

    def __init__(self, folder: Path, *, retained_epochs: int = 1000, takeover: bool = False, clock: ManualClock | None = None) -> None:
        elements = tm.from_elements([(1,)], schema="at BIGINT")
        stream = tm.source("fares", elements, watermarks=tm.bounded_out_of_orderness("0 seconds", timestamp="at"))
        self.job = tm.Job("fares", outputs={"rows": tm.memory(stream, "rows")}, retained_epochs=retained_epochs)
        self.clock = clock or ManualClock(4_000_000_000_000)
        self.store = JobStore.open(str(folder))
        self.log = JobLog(self.store.at("fares"), "fares", self.clock)
        self.driver = self.log.acquire(current_owner(), takeover=takeover)
        self.keeping = self.begin(self.driver)

    def begin(self, driver: Driver) -> Housekeeping:
        keeping = Housekeeping(self.store, self.job, driver, sinks={}, clock=self.clock)
        keeping.begin(driver.last, LINEAGE)
        return keeping

    def run(self, epochs: int, *, every: int) -> None:
        for _ in range(epochs):
            record = self.commit()
            self.clock.advance(every)
            self.keeping.after_epoch(record, record.progress)

    def commit(self) -> EpochRecord:
        last = self.driver.last
        epoch = 0 if last is None else last.epoch + 1
        progress = EpochProgress("fares", LINEAGE, epoch, 0, 0, 0, 0)
        record = EpochRecord("fares", LINEAGE, None, self.driver.term, epoch, 0, str(epoch), progress)
        self.driver.append(record)
        return record


def sweeps() -> int:
    return reached().get("sweep-done", 0)


@pytest.fixture(autouse=True)
def _counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TIDEMARK_CRASH_AT", "-")


def test_it_sweeps_at_the_start_and_then_after_so_many_epochs(tmp_path: Path) -> None:
    before = sweeps()
    office = Office(tmp_path)
    assert sweeps() == before + 1
    office.run(SWEEP_EPOCHS - 1, every=SECOND)
    assert sweeps() == before + 1
    office.run(1, every=SECOND)
    assert sweeps() == before + 2


def test_it_sweeps_after_so_much_time(tmp_path: Path) -> None:
    office, before = Office(tmp_path), sweeps()
    office.run(4, every=SWEEP_INTERVAL_MS // 5)
    assert sweeps() == before
    office.run(6, every=SWEEP_INTERVAL_MS // 5)
    assert sweeps() == before + 2


@pytest.mark.parametrize(("retained", "slack"), [(1, 1), (20, 2), (200, RETENTION_SLACK)])
def test_old_epochs_gather_a_little_and_retire_together(tmp_path: Path, retained: int, slack: int) -> None:
    office = Office(tmp_path, retained_epochs=retained)
    office.run(retained + slack, every=SECOND)
    assert len(list(office.log.epochs())) == retained + slack
    office.run(1, every=SECOND)
    assert len(list(office.log.epochs())) == retained


class NotingSink(DeltaSink):
    """Notes which versions of its table it was told to keep, None as long as nobody said."""

    kept: frozenset[int] | None = None

    def protect_versions(self, versions: frozenset[int] | None) -> None:
        self.kept = versions


def test_a_table_learns_which_versions_savepoints_need_also_that_there_is_none(tmp_path: Path) -> None:
    office, sink = Office(tmp_path / "store"), NotingSink("rows", str(tmp_path / "rows"))
    keeping = Housekeeping(office.store, office.job, office.driver, sinks={"rows": BoundSink("rows", sink)}, clock=office.clock)
    keeping.begin(office.driver.last, LINEAGE)
    assert sink.kept == frozenset(), "else nothing old of the table would ever go"


def test_what_can_wait_does_not_stop_a_job(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    office = Office(tmp_path)
    office.run(3, every=SECOND)
    (tmp_path / "fares" / "log" / "000000000001.json").write_text("{")
    with caplog.at_level(logging.WARNING, "tidemark"):
        office.run(1, every=SWEEP_INTERVAL_MS)
    assert "the sweep is put off" in caplog.text
    assert len(read_history(office.store, "fares")) == 4


@pytest.mark.parametrize("folder", ["refs/pins", "refs/holds"])
def test_what_keeps_the_sweep_is_told_once_a_day_until_it_is_mended(folder: str, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    office = Office(tmp_path)
    office.run(3, every=SECOND)
    Pins(office.log).put("good", 1)
    FileReferences(office.log.store).put(FileReference("good", "fares-what-if", office.clock.now_ms(), "good", ()))
    file, staged = tmp_path / "fares" / folder / "good.json", office.log.store.at("state")
    whole = file.read_bytes()
    file.write_bytes(whole[:-9])
    staged.put("hourly/1-1.parquet", b"nobody's")
    office.run(12, every=SWEEP_INTERVAL_MS)
    assert len(put_off(caplog)) == 1
    said = str(put_off(caplog)[0])
    assert f"the sweep is put off until this is fixed: [TM401] {file} is not whole JSON" in said
    assert "Fix: restore the file from a backup of the job store; or, if" in said
    assert staged.list(), "nothing that it may need goes"
    (item,) = status_of(office).put_off
    assert item.why in said
    shown = CliRunner().invoke(main, ["status", "fares", "--store", str(tmp_path)]).stdout
    assert f"warning: the sweep is deferred since {format_ms(item.since)}: [TM401] {file}" in shown
    again = Office(tmp_path, takeover=True, clock=office.clock)
    assert len(put_off(caplog)) == 1, "a restart does not tell it anew"
    again.clock.advance(LOGGED_AGAIN_MS)
    again.run(2, every=SWEEP_INTERVAL_MS)
    assert (len(put_off(caplog)), status_of(again).put_off[0].since) == (2, item.since)
    file.write_bytes(whole)
    again.run(2, every=SWEEP_INTERVAL_MS)
    assert status_of(again).put_off == ()
    assert not staged.list()


def put_off(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if "is put off" in record.getMessage()]


def status_of(office: Office) -> JobStatus:
    found = read_status(office.store, "fares")
    assert found is not None
    return found


def test_a_fenced_driver_that_wakes_writes_neither_history_nor_status(tmp_path: Path) -> None:
    old = Office(tmp_path)
    old.run(2, every=SECOND)
    # It commits an epoch and sleeps before it writes of it; another driver takes the job over, goes on and ends.
    last = old.commit()
    new = Office(tmp_path, takeover=True)
    new.run(3, every=SECOND)
    new.keeping.write_status("finished")
    before = history_and_status(new)
    assert [epoch.epoch for epoch in before[0]] == [0, 1, 2, 3, 4, 5]
    with pytest.raises(FencedError, match="term 2"):
        old.keeping.after_epoch(last, last.progress)
    assert history_and_status(new) == before
    for state in STATES:
        old.keeping.write_status(state)
    with pytest.raises(FencedError, match="term 2"):
        old.begin(old.driver)
    assert history_and_status(new) == before


def history_and_status(office: Office) -> tuple[list[EpochProgress], JobStatus | None]:
    return read_history(office.store, "fares"), read_status(office.store, "fares")


def test_a_fenced_driver_stops_at_the_next_sweep(tmp_path: Path) -> None:
    office = Office(tmp_path)
    office.run(2, every=SECOND)
    last = office.driver.last
    assert last is not None
    office.log.acquire(current_owner(), takeover=True)
    office.clock.advance(SWEEP_INTERVAL_MS)
    with pytest.raises(FencedError):
        office.keeping.after_epoch(last, last.progress)


def test_a_start_says_that_it_finishes_what_a_killed_driver_committed(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    office = Office(tmp_path)
    office.run(2, every=SECOND)

    def start() -> tuple[bool, bool | None]:
        """Begin as a driver does; returns whether the status and the history of the newest epoch say so."""
        found = Recovery(office.store, office.driver, {}, frozenset({"fares"}), (), lambda record, _: record)
        head = found.resume_point()
        office.keeping.begin(head, LINEAGE, found.finished)
        past, status = history_and_status(office)
        assert status is not None
        return past[-1].finished_at_start, None if status.last is None else status.last.finished_at_start

    with caplog.at_level(logging.INFO, "tidemark"):
        assert start() == (False, False)
        assert "was committed by a driver" not in caplog.text
        # Killed between its commit and the note of its publication.
        office.commit()
        assert start() == (True, True)
    assert "fares: epoch 2 was committed by a driver that ended before its publication was noted" in caplog.text
    status = status_of(office)
    assert "  epoch 2 was committed by a driver" in "\n".join(progress_lines(status))
    office.keeping.write_status("stopped")
    assert "  epoch 2 was committed by a driver" in "\n".join(progress_lines(status_of(office)))
    office.run(1, every=SECOND)
    assert [epoch.finished_at_start for epoch in read_history(office.store, "fares")] == [False, False, True, False]
    assert "was committed by a driver" not in "\n".join(progress_lines(status_of(office)))
