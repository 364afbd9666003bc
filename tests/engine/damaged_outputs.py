"""A job of four epochs with an output of each kind, its places to damage, and what people do to them."""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
from deltalake import DeltaTable, write_deltalake

import tidemark as tm
from tests.engine.lab import elements
from tidemark.savepoints.model.restore import Restore
from tidemark.spark.loop.run import RunResult
from tidemark.state.log.joblog import JobLog
from tidemark.state.log.progress import EpochProgress, MissingEpochs
from tidemark.state.store.store import JobStore

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

COLUMNS = pa.schema([("k", pa.string()), ("t", pa.int64())])
Loss = Callable[[Path], None]


class World:
    """One job in one place: its tables, and a copy of all of it after four epochs."""

    def __init__(self, spark: SparkSession, root: Path) -> None:
        self.spark = spark
        self.place = root / "world"
        self.kept = root / "kept"
        self.run(2)
        shutil.copytree(self.place / "files", root / "early")
        self.run(4)
        shutil.copytree(self.place, self.kept)

    def job(self, epochs: int, *, readers_move_files: bool = False) -> tm.Job:
        # Every epoch has a row of its own, and one that replaces that of the epoch before where rows are known by their key.
        rows = elements(*([(f"k{number}", number), ("same", number)] for number in range(epochs)), schema="k STRING, t BIGINT")
        plain = rows.select("k", "t")
        outputs = {
            "append": tm.delta(plain, f"{self.place}/append"),
            "upsert": tm.delta(plain, f"{self.place}/upsert", mode="upsert", keys=["k"]),
            "files": tm.parquet(plain, f"{self.place}/files", readers_move_files=readers_move_files),
            "memory": tm.memory(plain, "missing-epochs"),
        }
        return tm.Job("losing", outputs=outputs, store=f"{self.place}/store")

    def run(
        self,
        epochs: int,
        missing_epochs: MissingEpochs | None = None,
        on_epoch: Callable[[EpochProgress], None] | None = None,
        restore: Restore | None = None,
        *,
        readers_move_files: bool = False,
    ) -> RunResult:
        return tm.run(
            self.job(epochs, readers_move_files=readers_move_files),
            spark=self.spark,
            handle_signals=False,
            missing_epochs=missing_epochs,
            on_epoch=on_epoch,
            restore=restore,
        )

    @contextlib.contextmanager
    def again(self) -> Iterator[None]:
        """Begin with the four epochs."""
        shutil.rmtree(self.place)
        shutil.copytree(self.kept, self.place)
        yield

    def rows(self, output: str) -> list[tuple[str, int]]:
        """Return what readers find, sorted."""
        place = str(self.place / output)
        table = ds.dataset(place, format="parquet").to_table() if output == "files" else DeltaTable(place).to_pyarrow_table()
        return sorted((row["k"], row["t"]) for row in table.to_pylist())

    @property
    def store(self) -> JobStore:
        return JobStore.open(f"{self.place}/store")

    @property
    def epoch(self) -> int:
        """The newest committed epoch."""
        head = JobLog(self.store.at("losing"), "losing").load().epoch
        assert head is not None
        return head.epoch


def expected(output: str, epochs: int) -> list[tuple[str, int]]:
    """Return what an undisturbed run leaves."""
    plain = [(f"k{number}", number) for number in range(epochs)]
    same = [("same", number) for number in range(epochs)]
    return sorted(plain + (same[-1:] if output == "upsert" else same))


def table_restored(table: Path) -> None:
    DeltaTable(str(table)).restore(2)


def table_emptied(table: Path) -> None:
    DeltaTable(str(table)).delete()


def table_replaced(table: Path) -> None:
    """By another with the same columns, and more versions."""
    newest = DeltaTable(str(table)).version()
    shutil.rmtree(table)
    for _ in range(newest + 3):
        write_deltalake(str(table), COLUMNS.empty_table(), mode="append")


def table_overwritten(table: Path) -> None:
    write_deltalake(str(table), pa.Table.from_pylist([{"k": "x", "t": 1}], schema=COLUMNS), mode="overwrite")


def folder_put_back(folder: Path) -> None:
    """As it was after two epochs, with its note."""
    shutil.rmtree(folder)
    shutil.copytree(folder.parent.parent / "early", folder)


def files_deleted(folder: Path) -> None:
    """All that readers see; the sink's note stays."""
    for file in folder.glob("part-*.parquet"):
        file.unlink()


def files_put_back(folder: Path) -> None:
    """Those of two epochs; the sink's note stays."""
    files_deleted(folder)
    for file in (folder.parent.parent / "early").glob("part-*.parquet"):
        shutil.copy(file, folder)


def folder_emptied(folder: Path) -> None:
    shutil.rmtree(folder)
    folder.mkdir()


def folder_replaced(folder: Path) -> None:
    folder_emptied(folder)
    pq.write_table(pa.Table.from_pylist([{"k": "x", "t": 1}], schema=COLUMNS), folder / "part-0.parquet")


def data_file_deleted(table: Path) -> None:
    """That of the newest epoch; the log stays."""

    def newest_key(path: str) -> str:
        return max((key for key in pq.read_table(table / path)["k"].to_pylist() if key.startswith("k")), default="")

    (table / max(DeltaTable(str(table)).get_add_actions()["path"].to_pylist(), key=newest_key)).unlink()


LOSSES: dict[str, tuple[Loss, ...]] = {
    "append": (table_restored, table_emptied, table_overwritten, shutil.rmtree, table_replaced),
    "upsert": (table_restored, table_emptied, table_overwritten, shutil.rmtree, table_replaced),
    "files": (folder_put_back, files_put_back, files_deleted, folder_emptied, shutil.rmtree, folder_replaced),
}
