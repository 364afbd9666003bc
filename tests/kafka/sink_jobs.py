"""A job whose outputs are topics, in processes that are killed: trips by zone, their running totals, and the trips themselves."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import tidemark as tm
from tests.crash.warm_jvm import attach

SCHEMA: Final = "zone STRING, fare INT, op STRING, t BIGINT"
EPOCHS: Final = 3
SETTINGS: Final = {"spark.sql.shuffle.partitions": "2"}


def trips(epoch: int) -> list[dict[str, Any]]:
    """Return the trips of an epoch: zones come, change and go."""
    zones = ["z0", "z1", "z2", "z3", None]
    return [{"zone": zones[n % 5], "fare": epoch * 100 + n, "op": "insert", "t": epoch * 1000 + n} for n in range(20)]


def make_job(folder: Path, address: str, suffix: str, *, epochs: Sequence[Sequence[dict[str, Any]]] | None = None) -> tm.Job:
    """Return the job over ``fares-SUFFIX`` (rows as they are) and ``totals-SUFFIX`` (upserts of totals by zone)."""
    given = epochs if epochs is not None else [trips(epoch) for epoch in range(EPOCHS)]
    rows = tm.source("trips", tm.from_elements(epochs=given, schema=SCHEMA), watermarks=tm.ascending(timestamp="t"))
    totals = rows.key_by("zone").aggregate(n=tm.count(), total=tm.sum("fare")).uid("totals")
    plain = rows.select("zone", "fare")
    fares_topic, totals_topic = f"fares-{suffix}", f"totals-{suffix}"
    fares = tm.kafka_sink(plain, servers=address, topic=fares_topic, key=["zone"], key_format="text", rows_per_transaction=7)
    upserts = tm.kafka_sink(totals, servers=address, topic=totals_topic, mode="upsert")
    return tm.Job("trips", outputs={"fares": fares, "totals": upserts}, store=str(folder / "store"))


def drive(folder: str, address: str, suffix: str) -> None:
    """Run the job in a process of its own, on a JVM that outlives it."""
    tm.run(make_job(Path(folder), address, suffix), spark=attach(SETTINGS), handle_signals=False, takeover=True)


def expected_totals() -> dict[str | None, dict[str, Any]]:
    """Return the newest total of each zone, by the record's key."""
    found: dict[str | None, dict[str, Any]] = {}
    for epoch in range(EPOCHS):
        for trip in trips(epoch):
            key = json.dumps({"zone": trip["zone"]}, separators=(",", ":"))
            before = found.get(key, {"zone": trip["zone"], "n": 0, "total": 0})
            found[key] = {"zone": trip["zone"], "n": before["n"] + 1, "total": before["total"] + trip["fare"]}
    return found
