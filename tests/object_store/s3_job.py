"""A job that has all that it has on S3: its source, its state, a Delta table, an upserted one and a folder of Parquet files.

Run in a process of its own, whose session has Hadoop's connector; answers on standard output, as JSON.
"""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import DeltaTable

import tidemark as tm
from tests.few_rows import FEW_ROWS
from tidemark.spark.env.session import build_session
from tidemark.state.store.store import JobStore
from tidemark.testing import ManualClock

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SETTINGS = {"spark.sql.shuffle.partitions": "2", "spark.sql.files.maxRecordsPerFile": "3", **FEW_ROWS}
"""Files of a few rows, so that an epoch has several."""

START = 1_767_225_660_000
FILES = [
    [("a", 1, 0), ("b", 2, 1)],
    [("a", 3, 2), ("c", 4, 12)],
    [("b", 5, 13), ("a", 6, 14)],
    [("c", 7, 25), ("b", 8, 26)],
]
"""Key, value and second of the rows of each file; windows have ten seconds."""


@dataclass
class Lake:
    """A bucket with the job, as one process sees it."""

    bucket: str
    spark: SparkSession
    attempt: int = 0

    def job(self, parallelism: int) -> tm.Job:
        rows = tm.source(
            "rows",
            tm.files(f"s3://{self.bucket}/in", format="json", schema="k STRING, v BIGINT, at TIMESTAMP"),
            watermarks=tm.ascending(timestamp="at"),
        )
        totals = rows.key_by("k").window(tm.tumbling("10 seconds")).aggregate(total=tm.sum("v")).uid("totals")
        newest = rows.latest(by=["k"]).uid("newest").select("k", "v")
        return tm.Job(
            "fares",
            {
                "totals": tm.delta(totals, f"s3://{self.bucket}/totals"),
                "newest": tm.delta(newest, f"s3://{self.bucket}/newest", mode="upsert"),
                "rows": tm.parquet(rows, f"s3://{self.bucket}/rows"),
            },
            store=f"s3://{self.bucket}/jobs",
            parallelism=parallelism,
        )

    def put(self, number: int) -> None:
        lines = [json.dumps({"k": k, "v": v, "at": f"2026-01-01T00:00:{at:02}Z"}) for k, v, at in FILES[number]]
        JobStore.open(f"s3://{self.bucket}/in").put(f"{number}.json", "\n".join(lines).encode())

    def run(self, parallelism: int, **options: Any) -> None:
        self.attempt += 1
        tm.run(self.job(parallelism), spark=self.spark, clock=ManualClock(START + 3_600_000 * self.attempt), **options)

    def shown(self) -> dict[str, list[list[Any]]]:
        """Return what readers see at each place."""
        folder = JobStore.open(f"s3://{self.bucket}/rows")
        files = [file.path for file in folder.list() if not file.path.startswith("_") and "columns" not in file.path]
        rows = [row for path in files for row in pq.read_table(pa.BufferReader(folder.get(path)), columns=["k", "v"]).to_pylist()]
        return {
            "totals": _sorted(self._delta("totals", ["k", "total"])),
            "newest": _sorted(self._delta("newest", ["k", "v"])),
            "rows": _sorted(rows),
        }

    def _delta(self, name: str, columns: list[str]) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = DeltaTable(f"s3://{self.bucket}/{name}").to_pyarrow_table(columns=columns).to_pylist()
        return found


def _sorted(rows: list[dict[str, Any]]) -> list[list[Any]]:
    return sorted([list(row.values()) for row in rows], key=repr)


def main(bucket: str) -> dict[str, Any]:
    """Run, take a savepoint, restore it at another parallelism, rewind, and run again; return what was seen after each."""
    lake = Lake(bucket, build_session("local[2]", conf=SETTINGS))
    found: dict[str, Any] = {}
    for number in range(2):
        lake.put(number)
    lake.run(1)
    tm.savepoints_of(lake.job(1)).take("good")
    found["before"] = lake.shown()
    lake.put(2)
    lake.run(3)
    found["other parallelism"] = lake.shown()
    tm.rewind(lake.job(3), "good")
    found["rewound tables"] = lake.shown()
    lake.put(3)
    lake.run(2, end_of_input=True)
    found["after"] = lake.shown()
    found["settings"] = dict(lake.spark.sparkContext.getConf().getAll())
    return found


if __name__ == "__main__":
    sys.stdout.write(json.dumps(main(sys.argv[1])))
