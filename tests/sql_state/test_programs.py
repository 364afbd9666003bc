"""The engine runs many programs as the contract does, at any parallelism: what each element does is in its row, a key is a program."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any

import pytest

import tidemark as tm
from tests.seeds import PROFILE, only_long
from tests.sql_state.machines import LAST, OPERATIONS, RECURSIVE, Row, Walks
from tidemark.graph.operators.sql_state.expressions import depends_on_state
from tidemark.graph.operators.sql_state.node import SqlStateNode
from tidemark.semantics.keyed_process.declarations import StateTtl
from tidemark.semantics.keyed_process.times import EpochTimes
from tidemark.semantics.running.keyed_fold import KeyedFold, Stepped
from tidemark.state.log.progress import EpochProgress, OperatorProgress
from tidemark.testing import ManualClock

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

KEYS = 250
"""Programs of each operator."""

AS_FOLDS = (0, 1, 2) if PROFILE == "long" else (1,)
"""The lifetimes with which what needs no fold runs as one, too; what needs one does so with each."""

BOUND = 6
TTLS = (None, StateTtl(12, "event"), StateTtl(9, "processing"))


@dataclass(frozen=True)
class Epoch:
    """The elements of an epoch in the order in which they are read, and its times."""

    rows: Sequence[Row]
    times: EpochTimes

    @property
    def by_key(self) -> dict[str, list[Row]]:
        """The elements of each key, in order."""
        found: dict[str, list[Row]] = {}
        for row in sorted(self.rows, key=lambda row: int(row["t"])):
            found.setdefault(str(row["k"]), []).append(row)
        return found


def draw(seed: int, *, epochs: int = 3) -> list[Epoch]:
    """Draw the programs of all keys."""
    random, found, latest, watermark, now = Random(seed), list[Epoch](), 0, -(2**63), 100
    for number in range(epochs):
        low, high = max(0, 25 * number - 15), 25 * number + 30
        rows: list[Row] = []
        for key in range(KEYS):
            for _ in range(random.choice((0, 1, 1, 2, 4, 9))):
                x = random.choice((None, *range(8)))
                rows.append({"k": f"k{key}", "t": random.randint(low, high), "op": random.randrange(OPERATIONS), "x": x})
        random.shuffle(rows)
        latest = max(latest, *(int(row["t"]) for row in rows))
        after = max(watermark, latest - BOUND - 1)
        found.append(Epoch(rows, EpochTimes(watermark, after, BOUND, now)))
        watermark, now = after, now + random.randint(3, 15)
    return found


class Totals:
    """Running aggregates, or elements merged, by the contract."""

    def __init__(self, uid: str, ttl: StateTtl | None) -> None:
        self.fold: KeyedFold[Any, Row, Row] = KeyedFold(self._aggregate if uid[0] == "a" else self._merge, ttl)

    @staticmethod
    def _aggregate(state: Sequence[int | None] | None, row: Row) -> Stepped[Any, Row]:
        xs = [*(state or ()), row["x"]]
        known = [x for x in xs if x is not None]
        found = {"n": len(xs), "total": sum(known) if known else None, "xs": sorted(known), "most": max(known, default=None)}
        return Stepped(xs, [{"k": row["k"], **found}])

    @staticmethod
    def _merge(state: Row | None, row: Row) -> Stepped[Any, Row]:
        after = {"x": row["x"], "op": row["op"]}
        if state is not None:
            known = state["x"] is not None and row["x"] is not None
            after = {"x": 3 * state["x"] + row["x"] if known else None, "op": (state["op"] * 2 + row["op"]) % 7}
        return Stepped(after, [{"k": row["k"], **after}])

    def epoch(self, elements: Mapping[str, Sequence[Row]], times: EpochTimes) -> list[Row]:
        """Process the elements of an epoch; return the rows."""
        rows = [row for key, found in elements.items() for row, _ in self.fold.run(key, [(row, int(row["t"])) for row in found], times)]
        self.fold.end_epoch(times)
        return rows

    @property
    def kept(self) -> dict[Any, Any]:
        """The state of each key."""
        return self.fold.kept

    @property
    def expired_keys(self) -> int:
        """Keys whose state expired."""
        return self.fold.expired.keys


def operators(source: tm.Stream) -> dict[str, tuple[tm.Stream, Walks | Totals]]:
    """Return streams by uid, each with what the contract says of it; that of ``f…`` runs as a fold what needs none."""
    keyed, found = source.key_by("k"), dict[str, tuple[tm.Stream, Walks | Totals]]()
    for number, ttl in enumerate(TTLS):
        for name, form in (("r", RECURSIVE), ("l", LAST), *([("f", LAST)] if number in AS_FOLDS else [])):
            found[f"{name}{number}"] = keyed.process(form.declared(ttl)), Walks(form, ttl)
    ttl = TTLS[2]
    assert ttl is not None
    lives = tm.state_ttl(f"{ttl.ms} ms", domain=ttl.domain)
    results = {"n": tm.count(), "total": tm.sum("x"), "xs": tm.collect_list("x"), "most": tm.max("x")}
    found["a2"] = keyed.running_aggregate(**results, ttl=lives), Totals("a2", ttl)
    found["d2"] = keyed.reduce(x="3 * a.x + b.x", op="(a.op * 2 + b.op) % 7", ttl=lives), Totals("d2", ttl)
    return {uid: (stream.uid(uid), contract) for uid, (stream, contract) in found.items()}


def texts(rows: Iterable[Row]) -> Counter[str]:
    """Return rows as texts."""
    return Counter(str({name: sorted(value) if isinstance(value, list) else value for name, value in row.items()}) for row in rows)


@pytest.mark.spark
@pytest.mark.parametrize("parallelism", [pytest.param(1, marks=only_long), pytest.param(2, marks=only_long), 7])
def test_programs_by_the_engine_and_by_the_contract(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, parallelism: int
) -> None:
    epochs, seen = draw(parallelism), list[EpochProgress]()

    def folds(node: SqlStateNode) -> bool:
        return depends_on_state(node) or str(node.uid).startswith("f")

    monkeypatch.setattr("tidemark.spark.operators.sql_state.programs.depends_on_state", folds)
    # Folds of a few elements have several levels, and stored rows are looked up, as those of many are.
    monkeypatch.setattr("tidemark.spark.operators.sql_state.folded.PART", {1: 64, 2: 2, 7: 3}[parallelism])
    monkeypatch.setattr("tidemark.spark.operators.native_keyed.runtime.MANY_ROWS", {1: 200_000, 2: 0, 7: 200_000}[parallelism])
    given = [[(row["k"], row["t"], row["op"], row["x"]) for row in epoch.rows] for epoch in epochs]
    elements = tm.from_elements(epochs=given, schema="k STRING, t BIGINT, op INT, x BIGINT")
    made = operators(tm.source("programs", elements, watermarks=tm.bounded_out_of_orderness(f"{BOUND} ms", timestamp="t")))
    outputs = {uid: tm.memory(stream, f"{tmp_path}/{uid}") for uid, (stream, _) in made.items()}
    job = tm.Job("programs", outputs=outputs, store=f"{tmp_path}/store", parallelism=parallelism)
    clock, times = ManualClock(epochs[0].times.processing_time), [epoch.times.processing_time for epoch in epochs][1:]

    def after(progress: EpochProgress) -> None:
        seen.append(progress)
        if times:
            clock.set(times.pop(0))

    tm.run(job, spark=spark, clock=clock, on_epoch=after, max_epochs=len(epochs), handle_signals=False)
    stored = tm.savepoint(job)
    for uid, (_, contract) in made.items():
        expected = [row for epoch in epochs for row in contract.epoch(epoch.by_key, epoch.times)]
        table = tm.memory_table(f"{tmp_path}/{uid}")
        assert texts([] if table is None else table.to_pylist()) == texts(expected), uid
        progress = [epoch.operators[uid] for epoch in seen]
        _check_counts(uid, progress, contract)
        rows = [row.asDict() for row in stored.tables(uid, spark)["keys"].collect()]
        assert {row["k"] for row in rows} == set(contract.kept), uid
        if isinstance(contract, Walks):
            fields = {row.pop("k"): {name: value for name, value in row.items() if value is not None} for row in rows}
            assert fields == contract.kept, uid


def _check_counts(uid: str, progress: Sequence[OperatorProgress], contract: Walks | Totals) -> None:
    assert progress[-1].keys == len(contract.kept), uid
    assert contract.expired_keys > 0 or uid.endswith("0"), "the programs show what expires"
    assert sum(each.keys_expired for each in progress) == contract.expired_keys, uid
    if isinstance(contract, Walks):
        assert sum(each.state_expired for each in progress) == contract.expired, uid
        assert sum(each.keys_emptied for each in progress) == contract.emptied_keys, uid
