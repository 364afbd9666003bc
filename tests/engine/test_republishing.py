"""Publishing epochs again to a table that shows later ones already: all, in order, and gone on with after a crash.

No Spark runs here.
"""

from __future__ import annotations

import contextlib
import itertools
from pathlib import Path

import pytest
from deltalake import DeltaTable

from tests.engine.delta_rig import LINEAGE, SESSIONS, WINDOWS, Rig, row
from tidemark.errors import MissingEpochsError
from tidemark.savepoints.delta.missing_records import Retained
from tidemark.spark.sinks.delta import delta_republish
from tidemark.spark.sinks.delta.delta_upsert import Upsert
from tidemark.spark.sinks.staging.missing import Expected
from tidemark.state.delta.delta_tags import EPOCH, REPUBLISHED
from tidemark.state.log.progress import EpochProgress
from tidemark.state.log.records import EpochRecord, OutputRecord

MODES: dict[str, Upsert | None] = {"append": None, "upsert": WINDOWS, "sessions": SESSIONS}
KILLED = "killed here"


class Disordered:
    """A table of six epochs: somebody restored it just before epoch 4 was published, so that some before it are missing."""

    def __init__(self, folder: Path, mode: str, *, shown: int) -> None:
        self.rig = Rig(folder, MODES[mode])
        self.outputs: list[OutputRecord] = []
        self.versions: list[int] = []
        for number in range(6):
            if number == 4:
                self.position = self.rig.sink.position
                DeltaTable(str(folder)).restore(self.versions[shown - 1])
                self.rig.restart()
            # A row of its own, and one that replaces that of the epoch before the last.
            rows = [row(f"k{number}", number * 10, number)]
            if mode == "upsert":
                rows.append(row(f"same{number % 2}", 0, number, pane=number))
            elif mode == "sessions":
                rows.append(row("same", number, number, end=50, replaces=[number - 1] if number else []))
            self.outputs.append(self.rig.stage(*rows))
            self.rig.publish(self.outputs[-1])
            self.versions.append(self.rig.table.version())

    def retained(self, outputs: list[OutputRecord] | None = None) -> Retained:
        """Return the epochs as the job's log would have them."""
        found = self.outputs if outputs is None else outputs
        progress = EpochProgress("", LINEAGE, 0, 0, 0, 0, 0)
        return Retained(
            tuple(EpochRecord("taxi", LINEAGE, None, 1, n, 0, "", progress, outputs={"rows": item}) for n, item in enumerate(found)),
            complete=True,
        )

    def start(self) -> None:
        """Do as a process that begins anew, and finds what is missing."""
        self.rig.restart()
        self.rig.sink.expect(Expected(self.position))
        with pytest.raises(MissingEpochsError, match="is a RESTORE to version"):
            self.rig.sink.require_whole()

    @property
    def again(self) -> list[int]:
        """The epochs that were published again, in the order of the table's log."""
        return [int(commit[EPOCH]) for commit in reversed(self.rig.table.history()) if REPUBLISHED in commit]


def killed_after(monkeypatch: pytest.MonkeyPatch, count: int) -> None:
    """Have a process end after so many epochs were published again."""
    done = itertools.count(1)

    def ending(point: str) -> None:
        if point == "output-republished" and next(done) >= count:
            raise RuntimeError(KILLED)

    monkeypatch.setattr(delta_republish, "crash_point", ending)


@pytest.mark.parametrize("shown", [1, 2, 3])
@pytest.mark.parametrize("mode", MODES)
def test_epochs_that_the_table_shows_already_stay_the_newest(tmp_path: Path, mode: str, shown: int) -> None:
    table = Disordered(tmp_path / "table", mode, shown=shown)
    table.start()
    assert table.rig.rows != table.rig.expected
    again = tuple(range(shown, 4 if mode == "append" else 6))
    assert table.rig.sink.republish(table.retained()) == again
    assert table.rig.rows == table.rig.expected
    for number in (6, 7):
        table.rig.run(row(f"k{number}", number * 10, number))
    assert table.rig.rows == table.rig.expected


@pytest.mark.parametrize("killed", range(1, 6))
@pytest.mark.parametrize("mode", MODES)
def test_it_is_gone_on_with_after_each_epoch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mode: str, killed: int) -> None:
    table = Disordered(tmp_path / "table", mode, shown=1)
    wanted = list(range(1, 4 if mode == "append" else 6))
    table.start()
    with monkeypatch.context() as patch, pytest.raises(RuntimeError, match=KILLED) if killed <= len(wanted) else contextlib.nullcontext():
        killed_after(patch, killed)
        table.rig.sink.republish(table.retained())
    assert table.again == wanted[:killed]
    table.start()
    assert table.rig.sink.republish(table.retained()) == tuple(wanted)
    assert table.again == wanted
    assert table.rig.rows == table.rig.expected


@pytest.mark.parametrize("mode", ["upsert", "sessions"])
def test_another_restore_before_it_is_gone_on_with(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mode: str) -> None:
    table = Disordered(tmp_path / "table", mode, shown=1)
    for killed in (3, 2, 1):
        table.start()
        with monkeypatch.context() as patch:
            killed_after(patch, killed)
            with pytest.raises(RuntimeError, match=KILLED):
                table.rig.sink.republish(table.retained())
        DeltaTable(str(table.rig.folder)).restore(table.rig.table.version() - 1)
    table.start()
    table.rig.sink.republish(table.retained())
    assert table.rig.rows == table.rig.expected


def test_rows_without_a_key_are_not_added_twice(tmp_path: Path) -> None:
    """The output took keys until epoch 3, and none from epoch 4 on, whose rows the earlier ones would replace."""
    table = Disordered(tmp_path / "table", "upsert", shown=2)
    plain = [OutputRecord("delta", item.location, item.schema, item.files, item.rows) for item in table.outputs[4:]]
    table.start()
    version = table.rig.table.version()
    with pytest.raises(MissingEpochsError, match=r"cannot be published again: .*epoch 4 .*nothing was changed"):
        table.rig.sink.republish(table.retained([*table.outputs[:4], *plain]))
    assert table.rig.table.version() == version
