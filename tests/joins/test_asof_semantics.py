"""The rule of the temporal join: the reference, which drops state, answers as if it dropped nothing."""

from __future__ import annotations

from collections import Counter

import pytest

from tests.joins.asof_programs import MAX, MIN, Program, expected, random_program
from tidemark.semantics.joins.asof import AsofBounds, AsofByElement


def run(program: Program, lateness: int) -> list[tuple[Counter[object], Counter[object], list[int], list[int]]]:
    """Return new rows, corrections, and late numbers of each epoch, by the reference."""
    operator: AsofByElement[tuple[int, str | None, int], int] = AsofByElement(lateness)
    seen = [MIN, MIN]
    found = []
    for epoch, (lefts, rights) in enumerate(zip(program.lefts, program.rights, strict=True)):
        late_lefts = [each[2] for each in lefts if not operator.left((each[1],), each[0], each)]
        late_rights = [each[2] for each in rights if not operator.right((each[1],), each[0], (each[2],), each[2])]
        for side, (elements, bound) in enumerate(((lefts, program.left_bound), (rights, program.right_bound))):
            seen[side] = max([seen[side], *(each[0] - bound - 1 for each in elements)])
        if epoch == len(program.lefts) - 1:
            seen = [MAX, MAX]
        answers = operator.advance(min(seen), seen[1])
        new = Counter[object]((*each.element, each.after) for each in answers if each.first)
        corrected = Counter[object](((*each.element, each.before), (*each.element, each.after)) for each in answers if not each.first)
        found.append((new, corrected, late_lefts, late_rights))
    assert operator.lefts() == []
    assert operator.versions() == []
    return found


@pytest.mark.parametrize("lateness", [0, 7, 30])
def test_state_that_is_dropped_is_never_missed(lateness: int) -> None:
    corrections = late = 0
    for seed in range(300):
        program = random_program(seed)
        wanted = [(Counter(each.new), Counter(each.corrected), each.late_lefts, each.late_rights) for each in expected(program, lateness)]
        assert run(program, lateness) == wanted, seed
        corrections += sum(len(each.corrected) for each in expected(program, lateness))
        late += sum(len(each.late_lefts) + len(each.late_rights) for each in expected(program, lateness))
    assert late
    assert bool(corrections) == bool(lateness)


def test_bounds_never_go_back() -> None:
    bounds = AsofBounds().advanced(watermark=100, right=150, allowed_lateness_ms=0)
    assert (bounds.answered, bounds.corrected, bounds.gone) == (150, 150, 100)
    # What was dropped does not come back with a greater lateness.
    later = bounds.advanced(watermark=101, right=150, allowed_lateness_ms=500)
    assert (later.answered, later.corrected, later.gone) == (150, 150, 101)


def test_an_idle_right_input_holds_nobody_back() -> None:
    # The operator's watermark is that of the active left input.
    bounds = AsofBounds().advanced(watermark=10, right=10, allowed_lateness_ms=0).advanced(watermark=90, right=10, allowed_lateness_ms=0)
    assert (bounds.answered, bounds.gone) == (90, 90)
    # When both are idle nothing moves.
    assert bounds.advanced(watermark=90, right=10, allowed_lateness_ms=0) == bounds


def test_only_versions_that_can_be_met_are_kept() -> None:
    operator: AsofByElement[str, int] = AsofByElement()
    for time in range(0, 100, 10):
        operator.right(("a",), time, (time,), time)
    operator.advance(55, 200)
    assert [time for _, time, _ in operator.versions()] == [50, 60, 70, 80, 90]
    # At or after the base an element is answered, however late it is.
    assert operator.left(("a",), 50, "exact")
    assert not operator.left(("a",), 49, "gone")
    assert operator.left(("b",), 1, "another key")
    assert [(answer.element, answer.after) for answer in operator.advance(60, 200)] == [("exact", 50), ("another key", None)]
