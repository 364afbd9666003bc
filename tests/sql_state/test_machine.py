"""A state machine is the same machine as a process function with value states: element by element, whatever expires."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tests.sql_state.machines import LAST, OPERATIONS, RECURSIVE, Form, Row, Walks
from tidemark.semantics.keyed_process.declarations import StateTtl
from tidemark.semantics.keyed_process.times import EpochTimes
from tidemark.semantics.running.keyed_fold import KeyedFold

_ELEMENTS = st.lists(
    st.fixed_dictionaries(
        {
            "k": st.sampled_from(["a", "b"]),
            "t": st.integers(0, 60),
            "op": st.integers(0, OPERATIONS - 1),
            "x": st.one_of(st.none(), st.integers(0, 9)),
        }
    ),
    max_size=8,
)
_TTL = st.one_of(st.none(), st.builds(StateTtl, st.integers(1, 30), st.sampled_from(["event", "processing"])))


@st.composite
def epochs(draw: st.DrawFn) -> list[tuple[list[Row], EpochTimes]]:
    """Draw epochs with their times."""
    bound, before, now, found = draw(st.integers(0, 5)), -(2**40), 0, []
    for _ in range(draw(st.integers(1, 4))):
        elements: list[Row] = [*draw(_ELEMENTS)]
        after = max(before, draw(st.integers(-10, 60)))
        now += draw(st.integers(0, 20))
        found.append((elements, EpochTimes(before, after, bound, now)))
        before = after
    return found


@given(st.sampled_from([RECURSIVE, LAST]), epochs(), _TTL)
def test_a_machine_is_a_process_function_with_value_states(
    form: Form, cuts: list[tuple[list[Row], EpochTimes]], ttl: StateTtl | None
) -> None:
    walks = Walks(form, ttl)
    fold: KeyedFold[object, Row, Row] = KeyedFold(form.machine.step, ttl)  # type: ignore[arg-type]
    for elements, times in cuts:
        by_key: dict[str, list[Row]] = {}
        for row in sorted(elements, key=lambda row: int(row["t"])):
            by_key.setdefault(str(row["k"]), []).append(row)
        expected = walks.epoch(by_key, times)
        found = [row for key, rows in by_key.items() for row, _ in fold.run(key, [(row, int(row["t"])) for row in rows], times)]
        fold.end_epoch(times)
        assert sorted(map(str, found)) == sorted(map(str, expected))
        assert {key: held.state for key, held in fold.kept.items()} == walks.kept
