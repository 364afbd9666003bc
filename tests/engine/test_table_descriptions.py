"""Descriptions of tables and comments of their columns: of new tables at once, of others after a publication, and never in the way."""

from __future__ import annotations

from pathlib import Path

import pytest
from deltalake import DeltaTable

from tests.engine.test_table_columns import LINEAGE, UPSERT, PlainRewriter, rows_of, schema, stage, tags
from tidemark.savepoints.delta.result_tables import is_blank
from tidemark.spark.sinks.delta.delta_descriptions import TableTexts
from tidemark.spark.sinks.delta.delta_sink import DeltaSink
from tidemark.spark.sinks.delta.delta_upsert import Upsert
from tidemark.state.delta.delta_tags import EPOCH, JOB, MAINTENANCE

TEXTS = TableTexts("Counts by key.", {"k": "The key.", "n": "How many.", "top": "The highest."})


def sink_at(folder: Path, texts: TableTexts | None, upsert: Upsert | None = None) -> DeltaSink:
    sink = DeltaSink("rows", str(folder), upsert)
    return DeltaSink("rows", str(folder), upsert, PlainRewriter(sink.staging), own=lambda: True, job="fares", texts=texts)


def epoch(sink: DeltaSink, number: int, *rows: dict[str, object]) -> None:
    sink.publish(stage(sink, number, *rows), LINEAGE, number)


def shown(folder: Path) -> tuple[str | None, dict[str, str | None]]:
    table = DeltaTable(str(folder))
    return table.metadata().description, {field.name: field.metadata.get("comment") for field in table.schema().fields}


def test_a_new_table_has_them_in_its_first_version(tmp_path: Path) -> None:
    made = tmp_path / "made"
    sink = sink_at(made, TEXTS)
    sink.create(schema("k", "n"))
    assert shown(made) == ("Counts by key.", {"k": "The key.", "n": "How many."})
    table = DeltaTable(str(made))
    assert table.version() == 0
    assert is_blank(table, sink.location, "fares")
    sink_at(made, TEXTS).create(schema("k", "n"))
    assert DeltaTable(str(made)).version() == 0, "it is as it was wanted"
    published = tmp_path / "published"
    epoch(sink_at(published, TEXTS), 0, {"k": "a", "n": 1})
    assert shown(published) == ("Counts by key.", {"k": "The key.", "n": "How many."})
    assert DeltaTable(str(published)).version() == 1


@pytest.mark.parametrize("upsert", [None, UPSERT], ids=["append", "upsert"])
def test_a_table_gets_them_after_a_publication_and_then_no_more_versions(upsert: Upsert | None, tmp_path: Path) -> None:
    table = tmp_path / "table"
    epoch(sink_at(table, None, upsert), 0, {"k": "a", "n": 1})
    assert shown(table) == (None, {"k": None, "n": None})
    sink = sink_at(table, TEXTS, upsert)
    sink.require_whole()
    epoch(sink, 1, {"k": "b", "n": 2, "top": 0.5})
    assert shown(table) == ("Counts by key.", {"k": "The key.", "n": "How many.", "top": "The highest."})
    described = [commit for commit in tags(table) if commit.get(MAINTENANCE) == "descriptions"]
    assert [commit.get(JOB) for commit in described] == ["fares"] * 4
    # These versions are no other writer's, neither for this process nor for the next one.
    version = DeltaTable(str(table)).version()
    epoch(sink, 2, {"k": "c", "n": 3, "top": 1.5})
    sink.require_whole()
    again = sink_at(table, TEXTS, upsert)
    again.require_whole()
    epoch(again, 3, {"k": "a", "n": 4, "top": 2.5})
    assert DeltaTable(str(table)).version() == version + 2
    first = [] if upsert else [{"k": "a", "n": 1, "top": None}]
    rest = [{"k": "b", "n": 2, "top": 0.5}, {"k": "c", "n": 3, "top": 1.5}]
    assert rows_of(table) == sorted([*first, {"k": "a", "n": 4, "top": 2.5}, *rest], key=lambda row: (str(row["k"]), str(row["n"])))
    assert [commit[EPOCH] for commit in tags(table) if EPOCH in commit] == ["0", "1", "2", "3"]


@pytest.mark.parametrize("upsert", [None, UPSERT], ids=["append", "upsert"])
def test_a_column_that_comes_later_than_the_driver_s_first_epoch_has_its_comment(upsert: Upsert | None, tmp_path: Path) -> None:
    table = tmp_path / "table"
    sink = sink_at(table, TEXTS, upsert)
    # As after an upgrade: the new driver first finishes an epoch of the old code, which lacks a column.
    epoch(sink, 0, {"k": "a", "n": 1})
    epoch(sink, 1, {"k": "b", "n": 2, "top": 0.5})
    assert shown(table) == ("Counts by key.", {"k": "The key.", "n": "How many.", "top": "The highest."})
    version = DeltaTable(str(table)).version()
    epoch(sink, 2, {"k": "c", "n": 3, "top": 1.5})
    assert DeltaTable(str(table)).version() == version + 1, "it has all"


def test_a_changed_text_is_changed_and_what_is_not_described_stays(tmp_path: Path) -> None:
    table = tmp_path / "table"
    epoch(sink_at(table, TEXTS), 0, {"k": "a", "n": 1})
    DeltaTable(str(table)).alter.set_column_metadata("k", {"owner": "data"})
    epoch(sink_at(table, TableTexts(columns={"n": "The number.", "gone": "Not there."})), 1, {"k": "b", "n": 2})
    assert shown(table) == ("Counts by key.", {"k": "The key.", "n": "The number."})
    (key, _) = DeltaTable(str(table)).schema().fields
    assert key.metadata == {"comment": "The key.", "owner": "data"}


def test_a_failure_does_not_fail_the_epoch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    table = tmp_path / "table"
    epoch(sink_at(table, None), 0, {"k": "a", "n": 1})

    def fail(*_: object) -> int:
        raise OSError("disk full")

    monkeypatch.setattr(TableTexts, "describe", fail)
    sink = sink_at(table, TEXTS)
    epoch(sink, 1, {"k": "b", "n": 2})
    epoch(sink, 2, {"k": "c", "n": 3})
    assert [row["n"] for row in rows_of(table)] == [1, 2, 3]
    assert [record.getMessage() for record in caplog.records if "descriptions" in record.getMessage()] == [
        "output 'rows': descriptions of its table are not up to date: disk full"
    ]
