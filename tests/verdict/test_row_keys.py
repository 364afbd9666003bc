"""Other keys of an upsert than those that its table was written by: refused, since rows would be lost or stay."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import pytest
from deltalake import DeltaTable

import tidemark as tm
from tests.bad_inputs import Lab
from tests.verdict.stored import record_of
from tidemark.errors import SinkError
from tidemark.savepoints.delta.result_tables import check_outputs
from tidemark.savepoints.delta.row_key_changes import row_key_change
from tidemark.state.log.records import EpochRecord, OutputRecord, RestoreRef
from tidemark.state.log.totals import Totals

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

BY_ZONE = OutputRecord("delta", "there", options={"mode": "upsert", "keys": '["zone"]'})
APPENDED = OutputRecord("delta", "there", options={})


@pytest.mark.parametrize(
    ("stored", "keys", "fit", "what"),
    [
        (BY_ZONE, ("day",), "incompatible", "upserted by day, and the table was written by zone"),
        (BY_ZONE, ("zone", "day"), "incompatible", "upserted by zone, day, and the table was written by zone"),
        (BY_ZONE, (), "compatible", "appended from now on, and were upserted by zone"),
        (OutputRecord("kafka", "t", options={"keys": '["zone"]'}), ("day",), "incompatible", "the topic was written by zone"),
        (OutputRecord("kafka", "t", options={"keys": '["zone", "day"]'}), ("day", "zone"), "incompatible", "was written by zone, day"),
    ],
)
def test_what_changed_is_told(stored: OutputRecord, keys: tuple[str, ...], fit: str, what: str) -> None:
    finding = row_key_change(stored, keys)
    assert finding is not None
    assert (finding.fit, what in finding.what) == (fit, True)


@pytest.mark.parametrize(
    ("stored", "keys"),
    [
        (OutputRecord("delta", "there", options={"mode": "upsert", "keys": '["zone", "day"]'}), ("day", "zone")),
        (APPENDED, ()),
        # It is not known that it was not an epoch without rows, of an earlier release.
        (APPENDED, ("zone",)),
        # Topics of earlier releases do not say by which key they were written.
        (OutputRecord("kafka", "t"), ("zone",)),
    ],
)
def test_the_same_keys_are_none(stored: OutputRecord, keys: tuple[str, ...]) -> None:
    assert row_key_change(stored, keys) is None


def keyed(lab: Lab, mode: Literal["append", "upsert"] = "upsert", *keys: str, path: str = "rows") -> tm.Job:
    rows = lab.source([("a", 1, 7), ("b", 2, 7)], [("d", 3, 0)], [("c", 3, 7)]).filter("fare > 0")
    return lab.job(out=tm.delta(rows, lab.path(path), mode=mode, keys=list(keys) or None))


def record(name: str = "out", *, keys: str, rows: int = 1, restored: RestoreRef | None = None) -> EpochRecord:
    outputs = {name: OutputRecord("kafka", "kafka://broker:9092/t", options={"keys": json.dumps([keys])})}
    totals = Totals(sources={}, filters={}, operators={}, outputs={name: rows})
    return replace(record_of(), job="fares", outputs=outputs, totals=totals, restored=restored)


STREAM = tm.source(
    "fares", tm.files("in", format="json", schema="zone INT, day INT, at BIGINT, fare INT"), watermarks=tm.ascending(timestamp="at")
)
BY_DAY = tm.Job(
    "fares", outputs={"out": tm.kafka_sink(STREAM, servers="broker:9092", topic="t", mode="upsert", key=["day"])}, store="nowhere"
)
REWOUND, PUT_BACK = RestoreRef("rewind-1", "fares", "good"), RestoreRef("restore-1", "fares", "good")


@pytest.mark.parametrize(
    ("stored", "head", "reverted", "refused"),
    [
        (record(keys="zone"), None, False, True),
        (record(keys="day"), record(keys="zone"), False, True),
        # An upgrade that goes back reverts the place.
        (record(keys="day"), record(keys="zone"), True, False),
        (record(keys="zone"), record(keys="day"), True, True),
        # Without a row by these keys there is nothing to lose; a restore other than a rewind leaves later rows.
        (record(keys="zone", rows=0), None, False, False),
        (record(keys="zone", rows=0, restored=REWOUND), None, False, False),
        (record(keys="zone", rows=0, restored=PUT_BACK), None, False, True),
        # The output had another name.
        (record("former", keys="zone"), None, False, True),
        # Another job's.
        (replace(record(keys="zone"), job="other"), None, False, False),
    ],
)
def test_which_epoch_says_by_which_keys_a_place_was_written(
    *, stored: EpochRecord, head: EpochRecord | None, reverted: bool, refused: bool
) -> None:
    found = check_outputs(BY_DAY, stored, head, reverted=reverted)
    assert [each.fits for each in found] == ([False] if refused else [])


@pytest.mark.spark
@pytest.mark.slow
def test_a_job_with_other_keys_does_not_start(spark: SparkSession, tmp_path: Path) -> None:
    lab = Lab(tmp_path, spark)
    # The second epoch has no rows for the output, whose record still says by which keys the table was written.
    lab.run(keyed(lab, "upsert", "zone"), max_epochs=2)
    other = keyed(lab, "upsert", "fare")
    assert not tm.check(other).fits
    with pytest.raises(SinkError, match=r"'out' does not fit the table .*upserted by fare, .* written by zone") as raised:
        lab.run(other)
    assert "keep the previous keys" in raised.value.fix
    assert tm.check(keyed(lab, "upsert", "fare", path="elsewhere")).fits
    appended = tm.check(keyed(lab, "append"))
    assert (appended.fits, [each.lost for each in appended.outputs[0].findings]) == (True, ["older rows of a key stay"])
    lab.run(keyed(lab, "upsert", "zone"))
    assert sorted(DeltaTable(lab.path("rows")).to_pyarrow_table()["zone"].to_pylist()) == ["a", "b", "c"]
