"""The regular join of two changelogs in Flink SQL, and the sums of its pairs.

Runs in an environment of its own, which has ``apache-flink`` and not Tidemark: ``python flink_job.py REQUEST.json ANSWER.json``. All of it
runs in Flink's JVM; Python only submits it. It is tuned as Flink's manual says for such queries: mini-batches, aggregation in two phases,
reuse of objects, RocksDB's checkpoints incremental and its memory well above the default.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from time import monotonic  # noqa: TID251 - Tidemark's clock is not there
from typing import Final

from pyflink.common import Configuration, RowKind
from pyflink.datastream import StreamExecutionEnvironment
from pyflink.table import StreamTableEnvironment

SETTINGS: Final[Mapping[str, str]] = {
    "execution.runtime-mode": "STREAMING",
    "execution.checkpointing.interval": "10 s",
    # Else the end of a bounded input waits for one more checkpoint, up to an interval long.
    "execution.checkpointing.checkpoints-after-tasks-finish": "false",
    "execution.checkpointing.incremental": "true",
    "pipeline.object-reuse": "true",
    "restart-strategy.type": "none",
    "taskmanager.memory.managed.size": "1 gb",
    "table.exec.mini-batch.enabled": "true",
    "table.exec.mini-batch.allow-latency": "5 s",
    "table.exec.mini-batch.size": "50000",
    "table.optimizer.agg-phase-strategy": "TWO_PHASE",
}
_NEWEST: Final = """
    CREATE TEMPORARY VIEW {name}_newest AS SELECT id, k, v
    FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY id ORDER BY t DESC) AS place FROM {name}_rows) WHERE place = 1
"""
_SUMS: Final = """
    SELECT COUNT(*), SUM(l.v), SUM(r.v) FROM left_newest AS l JOIN right_newest AS r ON l.k = r.k
"""


def run(files: str, folder: str, *, state: str, parallelism: int) -> tuple[float, list[int]]:
    """Run the query over folders of CSV files with a state backend; return its seconds, and its last row."""
    settings = Configuration()
    for name, value in SETTINGS.items():
        settings.set_string(name, value)
    settings.set_string("state.backend.type", state)
    settings.set_string("execution.checkpointing.dir", f"file://{folder}/checkpoints")
    settings.set_string("io.tmp.dirs", f"{folder}/local")
    environment = StreamExecutionEnvironment.get_execution_environment(settings)
    environment.set_parallelism(parallelism)
    tables = StreamTableEnvironment.create(environment)
    for name in ("left", "right"):
        columns = "id BIGINT, k BIGINT, ts BIGINT, v BIGINT, t AS TO_TIMESTAMP_LTZ(ts, 3), WATERMARK FOR t AS t"
        source = f"'connector' = 'filesystem', 'path' = 'file://{files}/{name}', 'format' = 'csv'"
        tables.execute_sql(f"CREATE TABLE {name}_rows ({columns}) WITH ({source})")
        tables.execute_sql(_NEWEST.format(name=name))
    began, sums = monotonic(), [0, 0, 0]
    with tables.execute_sql(_SUMS).collect() as changes:
        for change in changes:
            if change.get_row_kind() in (RowKind.INSERT, RowKind.UPDATE_AFTER):
                sums = [int(value or 0) for value in change]
    return monotonic() - began, sums


def main() -> int:
    """Read the request, warm up, measure, write the answer."""
    asked, answer = (Path(argument) for argument in sys.argv[1:3])
    request = json.loads(asked.read_text(encoding="utf-8"))
    settings = {"state": request["state"], "parallelism": request["parallelism"]}
    run(request["warm_files"], f"{request['folder']}/warm-up", **settings)
    seconds, sums = run(request["files"], f"{request['folder']}/measured", **settings)
    answer.write_text(json.dumps({"seconds": seconds, "sums": sums}), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
