"""Counts what lands in a folder, by key and minute; doubles each value in Python on the way."""

from __future__ import annotations

import os

import tidemark as tm


def doubled(row: dict[str, object]) -> dict[str, object]:
    return {"k": row["k"], "t": row["t"], "v": 2 * int(str(row["v"]))}


def job() -> tm.Job:
    root = os.environ["LANDING_ROOT"]
    files = tm.files(root + "/in", format="json", schema="k STRING, t BIGINT, v BIGINT", max_files_per_epoch=2)
    landing = tm.source("landing", files, watermarks=tm.bounded_out_of_orderness("0 ms", timestamp="t"))
    rows = landing.map(doubled, returns="k STRING, t BIGINT, v BIGINT")
    minutes = rows.key_by("k").window(tm.tumbling("1 minute")).aggregate(n=tm.count(), total=tm.sum("v")).uid("minutes")
    return tm.Job("landing", outputs={"minutes": tm.delta(minutes, root + "/minutes")})
