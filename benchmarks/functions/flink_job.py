"""Fares by driver and hour as a process function of PyFlink's DataStream API.

Runs in an environment of its own, which has ``apache-flink`` and not Tidemark: ``python flink_job.py REQUEST.json ANSWER.json``. Fares are
read from and written to CSV files by Flink's own connectors, so that only the function is in Python.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from time import monotonic  # noqa: TID251 - Tidemark's clock is not there

from pyflink.common import Configuration, Row, Types
from pyflink.common.typeinfo import RowTypeInfo
from pyflink.datastream import KeyedProcessFunction, OutputTag, RuntimeContext, StreamExecutionEnvironment
from pyflink.datastream.state import MapStateDescriptor
from pyflink.table import StreamTableEnvironment

_HOUR_MS = 3_600_000


def results_type() -> RowTypeInfo:
    """Return the columns of results; new ones each time, since a type keeps a handle to Java, and is sent with the function."""
    return Types.ROW_NAMED(["driver", "hour_end", "total", "n"], [Types.LONG(), Types.LONG(), Types.DOUBLE(), Types.LONG()])


def late_tag() -> OutputTag:
    """Return the side output of late fares."""
    return OutputTag("late", Types.ROW_NAMED(["driver", "ts", "fare"], [Types.LONG(), Types.LONG(), Types.DOUBLE()]))


class HourlyFares(KeyedProcessFunction):
    """Adds each fare to the hour that it belongs to; a timer at the hour's end emits what was added, and drops it."""

    def open(self, runtime_context: RuntimeContext) -> None:
        """Get the state."""
        self.late = late_tag()
        self.hours = runtime_context.get_map_state(MapStateDescriptor("hours", Types.LONG(), Types.TUPLE([Types.DOUBLE(), Types.LONG()])))

    def process_element(self, value: Row, ctx: KeyedProcessFunction.Context) -> Iterator[object]:
        """Add a fare; one whose hour has ended is late."""
        time = ctx.timestamp()
        end = time - time % _HOUR_MS + _HOUR_MS
        if end - 1 <= ctx.timer_service().current_watermark():
            yield self.late, Row(driver=value[0], ts=time, fare=value[2])
            return
        so_far = self.hours.get(end)
        if so_far is None:
            so_far = (0.0, 0)
            ctx.timer_service().register_event_time_timer(end - 1)
        self.hours.put(end, (so_far[0] + value[2], so_far[1] + 1))

    def on_timer(self, timestamp: int, ctx: KeyedProcessFunction.OnTimerContext) -> Iterator[object]:
        """Emit an hour."""
        total, count = self.hours.get(timestamp + 1)
        yield Row(driver=ctx.get_current_key(), hour_end=timestamp + 1, total=total, n=count)
        self.hours.remove(timestamp + 1)


def run(files: str, folder: str, *, mode: str, parallelism: int, bound_ms: int) -> float:
    """Run the job over a folder of CSV files; return how many seconds it took."""
    settings = Configuration()
    settings.set_string("python.execution-mode", mode)
    settings.set_string("python.executable", sys.executable)
    settings.set_string("execution.checkpointing.interval", "10 s")
    settings.set_string("pipeline.object-reuse", "true")
    settings.set_string("restart-strategy.type", "none")
    environment = StreamExecutionEnvironment.get_execution_environment(settings)
    environment.set_parallelism(parallelism)
    tables = StreamTableEnvironment.create(environment)
    watermark = f"t AS TO_TIMESTAMP_LTZ(ts, 3), WATERMARK FOR t AS t - INTERVAL '{bound_ms // 60_000}' MINUTE"
    columns = f"driver BIGINT, ts BIGINT, fare DOUBLE, {watermark}"
    tables.execute_sql(_table("fares", columns, files))
    tables.execute_sql(_table("results", "driver BIGINT, hour_end BIGINT, total DOUBLE, n BIGINT", f"{folder}/results"))
    tables.execute_sql(_table("late", "driver BIGINT, ts BIGINT, fare DOUBLE", f"{folder}/late"))
    fares = tables.to_data_stream(tables.sql_query("SELECT driver, t, fare FROM fares"))
    hourly = fares.key_by(_driver, key_type=Types.LONG()).process(HourlyFares(), output_type=results_type())
    statements = tables.create_statement_set()
    statements.add_insert("results", tables.from_data_stream(hourly))
    statements.add_insert("late", tables.from_data_stream(hourly.get_side_output(late_tag())))
    began = monotonic()
    statements.execute().wait()
    return monotonic() - began


def _driver(row: Row) -> int:
    return int(row[0])


def _table(name: str, columns: str, path: str) -> str:
    return f"CREATE TABLE {name} ({columns}) WITH ('connector' = 'filesystem', 'path' = 'file://{path}', 'format' = 'csv')"


def main() -> int:
    """Read the request, warm up, measure, write the answer."""
    asked, answer = (Path(argument) for argument in sys.argv[1:3])
    request = json.loads(asked.read_text(encoding="utf-8"))
    settings = {"mode": request["mode"], "parallelism": request["parallelism"], "bound_ms": request["bound_ms"]}
    run(request["warm_files"], f"{request['folder']}/warm-up", **settings)
    seconds = run(request["files"], f"{request['folder']}/measured", **settings)
    answer.write_text(json.dumps({"seconds": seconds}), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
