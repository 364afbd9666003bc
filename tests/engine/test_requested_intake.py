"""The intake that somebody else requests: epochs read the share from the next one on, in a run of either kind, and every row once."""

from __future__ import annotations

import json
import os
import threading
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import tidemark as tm
from tidemark.errors import DefinitionError
from tidemark.spark.sources.intake_limits import MAX_SHARE, MIN_SHARE
from tidemark.spark.sources.planning.epoch_planner import needs_no_query
from tidemark.spark.sources.requested_intake import RequestedIntake
from tidemark.state.log.progress import EpochProgress
from tidemark.state.status.status import read_status
from tidemark.state.store.store import JobStore


def test_none_is_all_and_shares_have_bounds() -> None:
    wanted: list[float | None] = [None]
    intake = RequestedIntake(lambda: wanted[0])
    assert (intake.share, intake.has_new_bounds, intake.adapts) == (1.0, False, False)
    for requested, share in ((0.5, 0.5), (1e-9, MIN_SHARE), (99.0, MAX_SHARE), (None, 1.0)):
        wanted[0] = requested
        assert intake.has_new_bounds
        assert (intake.apply(), intake.share, intake.has_new_bounds) == (share, share, False)
        intake.observe(took_ms=60_000, filled=True)
        assert not intake.has_new_bounds, "epochs do not change it"


@pytest.mark.spark
@pytest.mark.parametrize("options", [{}, {"maxFileAge": "10000d"}], ids=["planned", "query"])
def test_epochs_read_the_requested_share(spark: SparkSession, tmp_path: Path, options: dict[str, str]) -> None:
    folder, rows, shares, works = tmp_path / "in", list[int](), list[float](), list[int]()
    folder.mkdir()
    for number in range(30):
        (folder / f"{number}.json").write_text(json.dumps({"t": number}))
        os.utime(folder / f"{number}.json", (1_600_000_000 + number,) * 2)
    spec = tm.files(str(folder), format="json", schema="t BIGINT", max_files_per_epoch=8, options=options)
    landing = tm.source("landing", spec, watermarks=tm.bounded_out_of_orderness("0 ms", timestamp="t"))
    job = tm.Job("job", outputs={"rows": tm.memory(landing, str(tmp_path))}, store=str(tmp_path / "store"))
    assert needs_no_query(spark, tuple(job.sources.values())) is not bool(options)
    stop = threading.Event()

    def after(epoch: EpochProgress) -> None:
        rows.append(epoch.rows_in)
        status = read_status(JobStore.open(str(tmp_path / "store")), "job")
        assert status is not None
        assert status.load is not None
        assert status.load.work is not None
        shares.append(status.load.intake)
        works.append(status.load.work.rows_in)
        assert (status.load.work.parallelism, status.load.work.epochs) == (3, len(rows))
        assert status.load.work.cores == spark.sparkContext.defaultParallelism
        assert status.load.work.max_intake == 1.0, "the source declares its bound"
        if sum(rows) >= 30:
            stop.set()

    def requested() -> float | None:
        return 0.25 if sum(rows) < 6 else None

    tm.run(
        job,
        spark=spark,
        trigger="100 milliseconds",
        intake=requested,
        parallelism=lambda: 3,
        on_epoch=after,
        stop=stop,
        handle_signals=False,
    )
    assert sum(rows) == 30, "every row once"
    assert works == [sum(rows[: number + 1]) for number in range(len(rows))]
    assert rows[0] == 2, rows
    assert 8 in rows, rows
    assert (shares[0], shares[-1]) == (0.25, 1.0)
    assert sorted(tm.memory_table(str(tmp_path)).column("t").to_pylist()) == list(range(30))  # type: ignore[union-attr]  # there is a table


def test_it_is_a_function() -> None:
    node = tm.source("s", tm.from_elements([(1,)], schema="t BIGINT"), watermarks=tm.bounded_out_of_orderness("0 ms", timestamp="t"))
    with pytest.raises(DefinitionError, match=r"intake=0\.5 is not a function"):
        tm.run(tm.Job("job", outputs={"rows": tm.memory(node, "rows")}), trigger="1 second", intake=0.5)  # type: ignore[arg-type]
