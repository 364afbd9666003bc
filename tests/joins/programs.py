"""Random programs of two streams for interval joins, many cases as keys of one run."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any

import tidemark as tm
from tidemark.semantics.joins.interval import How, IntervalJoin, IntervalJoinByElement, Side
from tidemark.state.log.progress import EpochProgress
from tidemark.testing import ManualClock

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

BOUND = 12
NOW = 1_700_000_000_000
LEFT = "t BIGINT, k INT, v BIGINT"
RIGHT = "u BIGINT, k INT, w BIGINT"

Element = tuple[int, int | None, int]
Result = tuple[int | None, int | None, int]
"""The values of both sides, None where there is no partner, and the event time."""


@dataclass(frozen=True)
class Program:
    """The elements of two streams by epoch: (time, key, value)."""

    left: tuple[tuple[Element, ...], ...]
    right: tuple[tuple[Element, ...], ...]

    def recut(self, random: Random) -> Program:
        """Return the same elements in other epochs."""
        parts = random.randint(1, 2 * len(self.left))
        return Program(_cut(self.left, parts, random), _cut(self.right, parts, random))


def _cut(epochs: Sequence[Sequence[Element]], parts: int, random: Random) -> tuple[tuple[Element, ...], ...]:
    every = [element for epoch in epochs for element in epoch]
    cuts = sorted(random.randint(0, len(every)) for _ in range(parts - 1))
    return tuple(tuple(every[a:b]) for a, b in zip([0, *cuts], [*cuts, len(every)], strict=True))


def random_program(random: Random, *, epochs: int = 5, keys: int = 30, rows: int = 60, disorder: int = 60) -> Program:
    """Return elements that drift on, out of order, some too late; many of equal times, some with a null key."""
    sides = []
    for _ in range(2):
        found, value = [], 0
        for number in range(epochs):
            base, epoch = 25 * number, []
            for _ in range(random.randint(0, rows) if number else rows):
                back = random.randint(0, disorder) if random.random() < 0.2 else random.randint(0, BOUND)
                key = None if random.random() < 0.05 else random.randrange(keys)
                epoch.append((base + random.randint(0, 25) - back, key, value))
                value += 1
            found.append(tuple(epoch))
        sides.append(tuple(found))
    return Program(*sides)


@dataclass(frozen=True)
class Outcome:
    """What each epoch did: results, late values of both sides, and how many elements were accepted."""

    results: tuple[Counter[Result], ...]
    late: tuple[tuple[Counter[int], Counter[int]], ...]
    accepted: tuple[int, ...]


def expected(program: Program, rule: IntervalJoin) -> Outcome:
    """Return what the contract says, element by element; the end of input is an epoch of its own."""
    reference = IntervalJoinByElement[int](rule)
    newest: list[int | None] = [None, None]
    results, late, accepted = [], [], []
    epochs = max(len(program.left), len(program.right))
    for number in range(epochs + 1):
        refused: tuple[Counter[int], Counter[int]] = (Counter(), Counter())
        taken = 0
        for at, elements in enumerate((program.left, program.right)):
            side: Side = "right" if at else "left"
            for time, key, value in elements[number] if number < len(elements) else ():
                newest[at] = max(time, time if newest[at] is None else newest[at])  # type: ignore[type-var]
                if reference.process(side, key, time, value):
                    taken += 1
                else:
                    refused[at][value] += 1
        known = [each for each in newest if each is not None]
        watermark = 2**62 if number == epochs else min(known) - BOUND - 1 if len(known) == 2 else -(2**62)
        results.append(Counter((each.left, each.right, each.time) for each in reference.end_epoch(watermark)))
        late.append(refused)
        accepted.append(taken)
    assert reference.kept() == []
    return Outcome(tuple(results), tuple(late), tuple(accepted))


LATE = {side: tm.OutputTag(f"{side}-late") for side in ("left", "right")}


def streams(program: Program) -> tuple[tm.Stream, tm.Stream]:
    """Return the two streams of a program."""
    made = []
    for name, epochs, schema, time in (("left", program.left, LEFT, "t"), ("right", program.right, RIGHT, "u")):
        given = tm.from_elements(epochs=epochs, schema=schema)
        made.append(tm.source(name, given, watermarks=tm.bounded_out_of_orderness(f"{BOUND} ms", timestamp=time)))
    return made[0], made[1]


def join_of(program: Program, how: How, lower: int, upper: int, *, uid: str) -> tm.Stream:
    """Return the join of a program's streams."""
    left, right = streams(program)
    within = (f"{lower} ms", f"{upper} ms")
    return left.join(right, on="k", how=how, within=within, late_left_to=LATE["left"], late_right_to=LATE["right"]).uid(uid)


def run_program(
    spark: SparkSession, folder: Path, program: Program, rules: Sequence[IntervalJoin], *, parallelism: int | None = None
) -> list[Outcome]:
    """Run joins of one program by the engine, all in one job; return what each did."""
    left, right = streams(program)
    outputs, names = {}, []
    for number, rule in enumerate(rules):
        tags = {side: tm.OutputTag(f"{side}-late-{number}") for side in LATE}
        within = (f"{rule.lower_ms} ms", f"{rule.upper_ms} ms")
        joined = left.join(right, on="k", how=rule.how, within=within, late_left_to=tags["left"], late_right_to=tags["right"])
        stream = joined.uid(f"join-{number}")
        names.append(stream)
        for name, each in (("results", stream), ("left", stream.side_output(tags["left"])), ("right", stream.side_output(tags["right"]))):
            outputs[f"{name}-{number}"] = tm.memory(each, f"{folder}/{name}-{number}")
    seen: list[list[tuple[Counter[Result], tuple[Counter[int], Counter[int]], int]]] = [[] for _ in rules]

    def after(epoch: EpochProgress) -> None:
        for number in range(len(rules)):
            progress = epoch.operators[f"join-{number}"]
            late = (
                Counter(row["v"] for row in _taken(f"{folder}/left-{number}")),
                Counter(row["w"] for row in _taken(f"{folder}/right-{number}")),
            )
            assert progress.rows_in == progress.rows_accepted + sum(progress.counters.values())
            counts = {name: rows for name, rows in progress.counters.items() if rows}
            assert counts == {f"late_{side}": found.total() for side, found in zip(LATE, late, strict=True) if found}
            rows = Counter(_result(row) for row in _taken(f"{folder}/results-{number}"))
            seen[number].append((rows, late, progress.rows_accepted))

    job = tm.Job("program", outputs=outputs, store=str(folder / "store"), parallelism=parallelism)
    tm.run(job, spark=spark, clock=ManualClock(NOW), on_epoch=after, end_of_input=True, handle_signals=False)
    return [Outcome(*(tuple(part) for part in zip(*each, strict=True))) for each in seen]


def _result(row: dict[str, Any]) -> Result:
    times = [time for time in (row.get("t"), row.get("u")) if time is not None]
    return row.get("v"), row.get("w"), max(times)


def _taken(name: str) -> list[dict[str, Any]]:
    table = tm.memory_table(name)
    rows = [] if table is None else table.to_pylist()
    tm.clear_memory(name)
    return rows
