"""What the measurements of joins are checked by is what joining row by row gives; the engines come to it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from benchmarks.joins import __main__ as program
from benchmarks.joins import flink, runs
from benchmarks.joins.changelogs import Upserts, joined_newest
from benchmarks.joins.epoch_cost import Tables
from benchmarks.joins.inputs import WITHIN_MS, Side, Sums, grouped, joined
from tests.seeds import only_long
from tidemark.errors import EngineError, SetupError


@pytest.mark.parametrize("outer", [False, True])
def test_a_join_row_by_row(outer: bool) -> None:  # noqa: FBT001
    left, right = Side(500, 7, 1), Side(500, 7, 2)
    (ids, keys, times, _), (other_ids, other_keys, other_times, _) = left.columns(), right.columns()
    rows = one = other = 0
    for row in range(left.rows):
        meets = (other_keys == keys[row]) & (abs(other_times - times[row]) <= WITHIN_MS)
        found = int(meets.sum())
        rows, one, other = rows + found, one + found * int(ids[row]), other + int(other_ids[meets].sum())
        if outer and not found:
            rows, one = rows + 1, one + int(ids[row])
    assert joined(left, right, outer=outer) == Sums(rows, one, other)


def test_groups_row_by_row() -> None:
    side = Side(300, 40, 3)
    _, keys, _, values = side.columns()
    assert grouped(side) == Sums(len({*keys.tolist()}), 300, sum(values.tolist()))


def test_the_newest_rows_joined_one_by_one() -> None:
    sides = Upserts(400, 30, 1), Upserts(400, 30, 2)
    newest = [{row[0]: row for row in zip(*(column.tolist() for column in side.columns()), strict=True)} for side in sides]
    pairs = [(one, other) for one in newest[0].values() for other in newest[1].values() if one[1] == other[1]]
    assert joined_newest(*sides) == Sums(len(pairs), sum(one[3] for one, _ in pairs), sum(other[3] for _, other in pairs))
    assert pairs


def test_upserts_are_written_as_they_are(tmp_path: Path) -> None:
    side = Upserts(10, 3, 5)
    side.write(tmp_path / "left", 3)
    lines = [line for path in sorted((tmp_path / "left").iterdir()) for line in path.read_text(encoding="utf-8").splitlines()]
    assert lines == [",".join(map(str, row)) for row in zip(*(column.tolist() for column in side.columns()), strict=True)]


def test_flink_is_left_out_with_a_reason(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def cannot_be_installed(_: Path) -> Path:
        raise SetupError("there is no network", fix="connect")

    monkeypatch.setattr(program, "flink_python", cannot_be_installed)
    assert program.available(["outer-1k"]) == {*program.ENGINES}
    assert program.available(["changelog-1k"]) == {"tidemark"}
    assert "Flink is left out: [TM600] there is no network" in capsys.readouterr().out


def test_flink_is_asked_for_its_state_backend(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    asked: list[Mapping[str, object]] = []

    def answers(_: str, job: Path, request: Mapping[str, object], folder: Path, *, scratch: Path, java_options: str) -> dict[str, object]:
        assert (job.exists(), folder, scratch, java_options) == (True, tmp_path / "run" / "flink", tmp_path, "-Xmx6g")
        asked.append(request)
        return {"seconds": 1.5, "sums": [1, 2, 3]}

    monkeypatch.setattr(flink, "run_flink_job", answers)
    for engine in program.CHANGELOG_ENGINES[1:]:
        request = runs.Request("changelog", engine, "warm", "files", str(tmp_path / "run"), 2)
        assert runs.measure(request) == runs.Answer(1.5, Sums(1, 2, 3))
    assert [(each["state"], each["warm_files"], each["files"]) for each in asked] == [
        ("rocksdb", "warm", "files"),
        ("hashmap", "warm", "files"),
    ]


def test_engines_take_turns_and_a_wrong_result_is_an_error(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    right = joined_newest(Upserts(400, 1_000, 1), Upserts(400, 1_000, 2))
    order: list[str] = []

    def answers(_: str, request: Mapping[str, object], folder: Path, *, engine: str) -> tuple[dict[str, object], int]:
        assert (folder.exists(), len(list(Path(str(request["files"]), "right").iterdir()))) == (True, program.FILES)
        order.append(engine)
        wrong = len(order) > 6
        return {"seconds": 1.0, "sums": {"rows": right.rows, "one": right.one, "other": right.other + wrong}}, 0

    monkeypatch.setattr(program, "SCRATCH", tmp_path)
    monkeypatch.setattr(program, "run_module", answers)
    found = program.measure("changelog-1k", 400, 2, program.CHANGELOG_ENGINES)
    assert found == {key: [1.0, 1.0] for key in program.CHANGELOG_ENGINES}
    assert order == [*program.CHANGELOG_ENGINES, *reversed(program.CHANGELOG_ENGINES)]
    with pytest.raises(EngineError, match="in changelog-1k, and the input says"):
        program.measure("changelog-1k", 400, 1, ["flink-heap"])


def test_the_page_has_what_was_measured_of_flink() -> None:
    seconds = {
        "changelog-1k": {"tidemark": [2.0], "flink-rocksdb": [4.0, 8.0, 6.0], "flink-heap": [1.0]},
        "changelog-200k": {"tidemark": [4.0]},
    }
    page = program.render(seconds, 1_000, {}).splitlines()
    assert [line.split(" | ")[1:] for line in page if line.startswith("| regular")] == [
        ["1,000", "333", "3.00 times", "2,000", "0.50 times |"],
        ["500", "not measured", "", "not measured", " |"],
    ]


def test_the_page_has_ratios_of_medians() -> None:
    seconds = {"outer-1k": {"tidemark": [1.0, 3.0, 2.0], "spark-rocksdb": [8.0]}}
    page = program.render(seconds, 8_000, {5_000: [2.0, 3.0, 9.0], 1_000: [2.0]}).splitlines()
    assert next(line for line in page if line.startswith("| left")) == (
        f"| {program.WORKLOADS['outer-1k'].title(1_000)} | 1,000 | 250 | 4.0 times |"
    )
    assert page[-2:] == ["| 1,000 | 2.00 | 1.00 |", "| 5,000 | 3.00 | 1.50 |"]


def test_tables_that_change_joined_row_by_row(tmp_path: Path) -> None:
    tables = Tables(tmp_path, 50, 10, 4)
    left: dict[int, tuple[int, int]] = {}
    right: dict[int, tuple[int, int]] = {}
    for epoch in range(5):
        for side, rows in (("left", left), ("right", right)):
            for row in pq.read_table(tmp_path / side / f"{epoch:04}.parquet").to_pylist():
                if row["op"] == "update_before":
                    assert rows[row["id"]] == (row["k"], row["v"])
                else:
                    assert row["op"] == ("update_after" if row["id"] in rows else "insert")
                    rows[row["id"]] = (row["k"], row["v"])
    met = [right[k][1] for k, _ in left.values()]
    assert tables.joined == (len(met), sum(met))
    assert any(met)


@only_long
@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "engines"), [("outer-1k", program.ENGINES), ("running-1k", program.ENGINES), ("changelog-1k", ("tidemark",))]
)
def test_engines_come_to_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, engines: tuple[str, ...]) -> None:
    monkeypatch.setattr(program, "SCRATCH", tmp_path / "scratch")
    (tmp_path / "scratch").mkdir()
    assert {engine: len(seconds) for engine, seconds in program.measure(name, 20_000, 1, engines).items()} == dict.fromkeys(engines, 1)
