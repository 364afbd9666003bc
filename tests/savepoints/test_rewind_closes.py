"""Drivers that stopped between the commit of an epoch and its publication, and wake when a rewind took the epoch back."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import CommitProperties, DeltaTable

from tests.savepoints.delta_jobs import write
from tests.savepoints.stored_jobs import StoredJob
from tidemark.errors import PublishError, RewindError
from tidemark.savepoints.rewind import rewinding
from tidemark.savepoints.rewind.rewind_abort import abort_rewind
from tidemark.savepoints.rewind.rewind_tables import revert_table
from tidemark.savepoints.rewind.rewinding import preview_rewind, rewind
from tidemark.spark.loop.late_publication import late_publisher
from tidemark.spark.sinks.delta.delta_sink import DeltaSink
from tidemark.spark.sinks.parquet_sink import ParquetSink
from tidemark.spark.sinks.publication import publish
from tidemark.spark.sinks.sinks import BoundSink
from tidemark.state.delta.delta_tags import EPOCH, LINEAGE
from tidemark.state.log.records import EpochRecord, OutputRecord, StagedFile
from tidemark.state.store.store import JobStore

SCHEMA = json.dumps({"type": "struct", "fields": [{"name": "epoch", "type": "long", "nullable": True, "metadata": {}}]})
NAMES = ("always", "at-times")


class Publishing:
    """A job whose epochs are published by the sinks themselves; ``at-times`` has rows only in some epochs."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.job = StoredJob(JobStore.open(str(folder / "store")))
        self.sinks = {name: BoundSink(name, DeltaSink(name, str(folder / name))) for name in NAMES}

    def stage(self, epoch: int, names: tuple[str, ...] = NAMES, *, without: tuple[str, ...] = ()) -> EpochRecord:
        outputs = {name: self._staged(name, epoch) if name in names else self._empty(name) for name in NAMES}
        self.job.outputs = {name: output for name, output in outputs.items() if name not in without}
        record = self.job.commit()
        assert record.epoch == epoch
        return record

    def publish(self, record: EpochRecord) -> None:
        publish(record, self.sinks)

    def rows(self, name: str) -> list[int]:
        return sorted(DeltaTable(str(self.folder / name)).to_pyarrow_table()["epoch"].to_pylist())

    def rewind(self, name: str) -> EpochRecord:
        """Rewind as an upgrade does that goes back: what the newest epoch has not published is not wanted back."""
        self.job.driver.release()
        self.job.clock.advance(3_600_000)
        head = rewind(self.job.root, "taxi", name, clock=self.job.clock, although_unpublished=True)
        self.job.restart()
        return head

    def _empty(self, name: str) -> OutputRecord:
        return OutputRecord("delta", str(self.folder / name))

    def _staged(self, name: str, epoch: int) -> OutputRecord:
        path = f"tidemark-e{epoch}-{self.job.driver.term}/part-{epoch}.parquet"
        place = self.folder / name / path
        place.parent.mkdir(parents=True, exist_ok=True)
        pq.write_table(pa.table({"epoch": pa.array([epoch], pa.int64())}), place)
        return OutputRecord("delta", str(self.folder / name), SCHEMA, (StagedFile(path, 1, place.stat().st_size),), 1)


@pytest.fixture
def job(tmp_path: Path) -> Publishing:
    made = Publishing(tmp_path)
    for epoch in range(3):
        made.publish(made.stage(epoch))
        if epoch in (1, 2):
            made.job.savepoints.take(f"sp-{epoch}")
    return made


@pytest.mark.parametrize(("name", "shown"), [("sp-1", [0, 1]), ("sp-2", [0, 1, 2])])
def test_it_publishes_nothing_of_what_was_taken_back(job: Publishing, name: str, shown: list[int]) -> None:
    stopped = job.stage(3)
    head = job.rewind(name)
    assert [job.rows(each) for each in NAMES] == [shown] * 2
    job.publish(stopped)
    assert [job.rows(each) for each in NAMES] == [shown] * 2
    # The lineage that begins there publishes as ever, and a table that was only closed counts as unchanged.
    plan = preview_rewind(job.job.root, "taxi", name, clock=job.job.clock)
    assert plan.refusals == ()
    assert plan.changed == (() if name == "sp-2" else NAMES)
    for epoch in range(head.epoch + 1, 5):
        job.publish(job.stage(epoch))
    assert [job.rows(each) for each in NAMES] == [[0, 1, 2, 3, 4]] * 2


def test_a_table_that_has_all_is_left_alone(job: Publishing, tmp_path: Path) -> None:
    job.rewind("sp-2")
    assert [DeltaTable(str(tmp_path / name)).version() for name in NAMES] == [3, 3]


def test_a_table_that_had_no_rows_in_the_newest_epoch_is_closed_too(job: Publishing) -> None:
    job.publish(job.stage(3, names=("always",)))
    stopped = job.stage(4)
    job.rewind("sp-2")
    job.publish(stopped)
    assert [job.rows(each) for each in NAMES] == [[0, 1, 2]] * 2


def test_rows_that_no_table_has_yet_are_published_first(tmp_path: Path) -> None:
    job = Publishing(tmp_path)
    job.stage(0)
    job.job.savepoints.take("first")
    job.job.driver.release()
    plan = preview_rewind(job.job.root, "taxi", "first", clock=job.job.clock)
    assert (plan.refusals, plan.unpublished) == ((), NAMES)
    with pytest.raises(RewindError, match=r"table of output 'always' does not show epoch 0 yet, which is committed"):
        rewind(job.job.root, "taxi", "first", clock=job.job.clock)
    said: list[str] = []
    rewind(job.job.root, "taxi", "first", clock=job.job.clock, publish=late_publisher(), on_progress=said.append)
    assert said[0] == "epoch 0, which is committed, is published first: always, at-times"
    assert [job.rows(each) for each in NAMES] == [[0]] * 2


def test_rows_of_an_older_epoch_that_no_table_has_refuse_it(job: Publishing, tmp_path: Path) -> None:
    job.publish(job.stage(3, names=("always",)))
    shutil.rmtree(tmp_path / "at-times")
    job.job.driver.release()
    with pytest.raises(RewindError, match=r"output .at-times.: the table at .* no longer exists"):
        rewind(job.job.root, "taxi", "sp-1", clock=job.job.clock, publish=late_publisher())


def test_an_epoch_that_could_never_be_published_any_more_is_published_first(job: Publishing) -> None:
    job.stage(3)
    # While its driver is alive that is only a matter of time.
    assert preview_rewind(job.job.root, "taxi", "sp-1", clock=job.job.clock).unpublished == ()
    job.job.driver.release()
    assert preview_rewind(job.job.root, "taxi", "sp-1", clock=job.job.clock).unpublished == NAMES
    rewind(job.job.root, "taxi", "sp-1", clock=job.job.clock, publish=late_publisher())
    assert [job.rows(each) for each in NAMES] == [[0, 1]] * 2
    (before,) = (item for item in job.job.savepoints.list() if item.info.kind == "before-rewind")
    rewind(job.job.root, "taxi", before.name, clock=job.job.clock, publish=late_publisher())
    assert [job.rows(each) for each in NAMES] == [[0, 1, 2, 3]] * 2


def test_what_cannot_be_published_refuses_it(job: Publishing, tmp_path: Path) -> None:
    stopped = job.stage(3)
    job.job.driver.release()
    (staged,) = stopped.outputs["always"].files
    log = tmp_path / "always" / "_delta_log"
    (log / f"{DeltaTable(str(tmp_path / 'always')).version() + 1:020d}.json").mkdir()
    with pytest.raises(RewindError, match=r"epoch 3 is committed and cannot be published, .*Fix: repair that, and give the command again"):
        rewind(job.job.root, "taxi", "sp-1", clock=job.job.clock, publish=late_publisher())
    assert job.job.log.load().epoch == stopped
    assert (tmp_path / "always" / staged.path).exists()


@pytest.mark.parametrize("deleted", ["entries", "staged"])
def test_a_loss_that_only_the_sink_finds_is_gone_back_behind(job: Publishing, tmp_path: Path, deleted: str) -> None:
    """The records are of an earlier release, or the staged files are gone: to publish the newest epoch would hide what is missing."""
    job.job.counted = True
    job.publish(job.stage(3))
    record = job.stage(4)
    for name in NAMES:
        if deleted == "entries":
            for entry in sorted((tmp_path / name / "_delta_log").glob("*.json"))[-2:]:
                entry.unlink()
        else:
            shutil.rmtree(tmp_path / name / Path(record.outputs[name].files[0].path).parent)
    before = [job.rows(each) for each in NAMES]
    job.job.driver.release()
    plan = preview_rewind(job.job.root, "taxi", "sp-1", clock=job.job.clock)
    assert (plan.refusals, plan.unpublished) == ((), NAMES)
    said: list[str] = []
    if deleted == "entries":
        # Where it is refused for another reason, nothing is hidden.
        with pytest.raises(RewindError, match=r"version 2, which comes before version 3"):
            rewind(job.job.root, "taxi", "sp-2", clock=job.job.clock, publish=late_publisher())
        assert [job.rows(each) for each in NAMES] == before == [[0, 1]] * 2
    rewind(job.job.root, "taxi", "sp-1", clock=job.job.clock, publish=late_publisher(), on_progress=said.append)
    assert [line for line in said if line.startswith(f"epoch 4 of output {NAMES[0]} is not published first: ")]
    assert [job.rows(each) for each in NAMES] == [[0, 1]] * 2
    # As in a new process.
    job.sinks = {name: BoundSink(name, DeltaSink(name, str(tmp_path / name))) for name in NAMES}
    job.job.restart()
    for epoch in range(2, 5):
        job.publish(job.stage(epoch))
    assert [job.rows(each) for each in NAMES] == [[0, 1, 2, 3, 4]] * 2


def test_the_way_back_to_an_epoch_that_was_never_published_is_refused(job: Publishing) -> None:
    job.stage(3)
    job.rewind("sp-1")
    (before,) = (item for item in job.job.savepoints.list() if item.info.kind == "before-rewind")
    job.job.driver.release()
    with pytest.raises(RewindError, match=r"'always': no version of the table at .* is known to show epoch 3.*'at-times': no version"):
        rewind(job.job.root, "taxi", before.name, clock=job.job.clock)
    assert [job.rows(each) for each in NAMES] == [[0, 1]] * 2


def test_a_table_that_the_job_did_not_have_then_is_emptied(tmp_path: Path) -> None:
    job = Publishing(tmp_path)
    job.publish(job.stage(0, names=("always",), without=("at-times",)))
    job.job.savepoints.take("first")
    job.publish(job.stage(1))
    job.rewind("first")
    assert [job.rows(each) for each in NAMES] == [[0], []]


def test_rows_for_a_table_that_nobody_made_are_given_up_with_all_that_is_unpublished(tmp_path: Path) -> None:
    job = Publishing(tmp_path)
    job.publish(job.stage(0, names=("always",), without=("at-times",)))
    job.job.savepoints.take("first")
    job.stage(1)
    job.job.driver.release()
    assert preview_rewind(job.job.root, "taxi", "first", clock=job.job.clock).unpublished == NAMES
    job.job.restart()
    job.rewind("first")
    assert job.rows("always") == [0]
    assert not (tmp_path / "at-times" / "_delta_log").exists()


def moved_job(folder: Path) -> Publishing:
    """Return a job of three epochs, with a savepoint after the first one; the last one goes elsewhere."""
    job = Publishing(folder)
    job.publish(job.stage(0))
    job.job.savepoints.take("first")
    job.publish(job.stage(1))
    job.folder = folder / "elsewhere"
    job.publish(job.stage(2))
    return job


def test_the_tables_that_an_output_had_then_and_that_it_has_now_are_both_put_back(tmp_path: Path) -> None:
    job = moved_job(tmp_path)
    assert preview_rewind(job.job.root, "taxi", "first", clock=job.job.clock).changed == (
        "always",
        "always (where it was)",
        "at-times",
        "at-times (where it was)",
    )
    job.rewind("first")
    assert [job.rows(each) for each in NAMES] == [[]] * 2
    job.folder = tmp_path
    assert [job.rows(each) for each in NAMES] == [[0]] * 2
    # And forth again, to what there was before the rewind.
    job.publish(job.stage(1))
    job.rewind(next(item.name for item in job.job.savepoints.list() if item.info.kind == "before-rewind"))
    assert [job.rows(each) for each in NAMES] == [[0, 1]] * 2
    job.folder = tmp_path / "elsewhere"
    assert [job.rows(each) for each in NAMES] == [[2]] * 2


def test_tables_that_were_outputs_only_meanwhile_are_emptied_or_named(tmp_path: Path) -> None:
    job = Publishing(tmp_path)
    job.publish(job.stage(0))
    job.job.savepoints.take("first")
    for epoch, place in enumerate(("second", "third", "fourth"), start=1):
        job.folder = tmp_path / place
        job.publish(job.stage(epoch))
    job.folder = tmp_path
    job.publish(job.stage(4))
    # Somebody else has one of them now, another is gone.
    write(str(tmp_path / "second" / "always"), 70)
    shutil.rmtree(tmp_path / "third" / "always")
    plan = preview_rewind(job.job.root, "taxi", "first", clock=job.job.clock)
    assert plan.refusals == ()
    assert {plan.tables[name].location for name in plan.changed} == {
        *(str(tmp_path / place) for place in NAMES),
        *(str(tmp_path / place) for place in ("second/at-times", "third/at-times", "fourth/always", "fourth/at-times")),
    }
    (left,) = plan.left.values()
    assert left.startswith("what was written to it since stays: output 'always (where it was)")
    job.rewind("first")
    assert [job.rows(each) for each in NAMES] == [[0]] * 2
    job.folder = tmp_path / "fourth"
    assert [job.rows(each) for each in NAMES] == [[]] * 2
    job.folder = tmp_path / "second"
    assert [job.rows(each) for each in NAMES] == [[1, 70], []]


def test_a_former_table_is_closed_to_what_was_not_published_there(tmp_path: Path) -> None:
    job = Publishing(tmp_path)
    job.publish(job.stage(0))
    stopped = job.stage(1)
    job.job.savepoints.take("first", epoch=0)
    # As where somebody was faster than the driver that staged it, and slept before it could see that.
    job.folder = tmp_path / "elsewhere"
    job.publish(job.stage(2))
    job.rewind("first")
    job.publish(stopped)
    job.folder = tmp_path
    assert [job.rows(each) for each in NAMES] == [[0]] * 2


def test_a_rewind_of_tables_that_lie_elsewhere_now_is_gone_on_with(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    job, done = moved_job(tmp_path), 0

    def stops(*args: Any) -> bool:
        nonlocal done
        done += 1
        if done == 3:
            raise PublishError("no way", fix="none")
        return revert_table(*args)

    monkeypatch.setattr(rewinding, "revert_table", stops)
    with pytest.raises(PublishError):
        job.rewind("first")
    with pytest.raises(RewindError, match=r"can no longer be aborted: .*is reverted already"):
        abort_rewind(job.job.root, "taxi", clock=job.job.clock)
    rewind(job.job.root, "taxi", "first", clock=job.job.clock)
    for folder, shown in ((tmp_path, [0]), (tmp_path / "elsewhere", [])):
        job.folder = folder
        assert [job.rows(each) for each in NAMES] == [shown] * 2


def test_a_rewind_that_touched_no_former_table_can_be_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    job = moved_job(tmp_path)

    def stops(*_: object) -> bool:
        raise PublishError("no way", fix="none")

    monkeypatch.setattr(rewinding, "revert_table", stops)
    with pytest.raises(PublishError):
        job.rewind("first")
    abort_rewind(job.job.root, "taxi", clock=job.job.clock)
    job.job.restart()
    job.publish(job.stage(3))
    assert [job.rows(each) for each in NAMES] == [[2, 3]] * 2


def test_a_former_place_that_another_job_has_now_is_not_put_back(tmp_path: Path) -> None:
    job = moved_job(tmp_path)
    write(str(tmp_path / "always"), 9, CommitProperties(custom_metadata={LINEAGE: "another", EPOCH: "0"}))
    (reason,) = preview_rewind(job.job.root, "taxi", "first", clock=job.job.clock).refusals
    assert reason.startswith("output 'always (where it was)': ")
    assert "newer versions by other writers, which would be undone" in reason


@pytest.mark.parametrize("deleted", ["folder", "files"])
def test_a_folder_that_is_gone_does_not_stand_against_it(tmp_path: Path, deleted: str) -> None:
    job, folder = StoredJob(JobStore.open(str(tmp_path / "store")), counted=True), tmp_path / "files"
    sink = BoundSink("files", ParquetSink("files", str(folder), job="taxi"))
    for epoch in range(3):
        sink.sink.require_whole()
        place = folder / "_tidemark" / f"e{epoch}" / "part-0.parquet"
        place.parent.mkdir(parents=True)
        pq.write_table(pa.table({"epoch": [epoch]}), place)
        staged = StagedFile(f"_tidemark/e{epoch}/part-0.parquet", 1, place.stat().st_size)
        job.outputs = {"files": OutputRecord("parquet", str(folder), SCHEMA, (staged,), 1, before=sink.sink.position)}
        record = job.commit()
        publish(record, {"files": sink})
        job.savepoints.take(f"sp-{epoch}")
    if deleted == "folder":
        shutil.rmtree(folder)
    else:
        for file in folder.glob("part-*.parquet"):
            file.unlink()
    job.driver.release()
    said: list[str] = []
    assert rewind(job.root, "taxi", "sp-1", clock=job.clock, publish=late_publisher(), on_progress=said.append).epoch == 1
    assert ["files is not published first" in " ".join(said)] == [deleted == "folder"]
