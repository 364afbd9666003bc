"""What is gone from a window, in few words, against a set of what is left."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from tidemark.semantics.windows.element_ranges import NOTHING_REMOVED, ElementRange, add_tombstone, all_of, removed_from_json, united
from tidemark.semantics.windows.windows import Window

WINDOW = Window(0, 50)
STEPS = st.lists(
    st.tuples(
        st.lists(st.integers(0, 49), max_size=5),
        st.sampled_from(["evict", "evict", "evict first", "evict last", "purge", "nothing"]),
        st.sets(st.integers(0, 20)),
    ),
    max_size=8,
)


@settings(deadline=None)
@given(STEPS)
def test_survivors_are_what_is_left_and_it_is_said_in_few_words(steps: list[tuple[list[int], str, set[int]]]) -> None:
    everything: list[tuple[int, int]] = []
    left: list[tuple[int, int]] = []
    removed = NOTHING_REMOVED
    for epoch, (times, what, chosen) in enumerate(steps):
        new = [(time, epoch * 100 + place) for place, time in enumerate(times)]
        everything, left, through = everything + new, left + new, epoch * 100 + 99
        gone = {place for place in chosen if place < len(left)}
        gone = {
            "evict": gone,
            "evict first": set(range(len(gone))),
            "evict last": set(range(len(left) - len(gone), len(left))),
            "purge": set(range(len(left))),
            "nothing": set[int](),
        }[what]
        stay = [element for place, element in enumerate(left) if place not in gone]
        if what == "purge":
            removed = all_of(WINDOW, through)
        elif gone:
            held, survivors = [order for _, order in left], [order for _, order in stay]
            removed = removed.with_survivors(WINDOW, through, held=held, survivors=survivors)
        left = stay
        assert [element for element in everything if not removed.covers(*element)] == left
        assert removed_from_json(removed.to_json()) == removed
        words = len(removed.single) + sum(len(area.except_orders) for area in removed.areas)
        assert words <= len(left)
        assert len(removed.areas) <= 2


def test_what_is_said_of_parts_is_said_of_the_session_they_become() -> None:
    early, late = Window(0, 10), Window(20, 30)
    whole = united([all_of(early, 5), all_of(late, 7).with_survivors(late, 9, held=[8, 9], survivors=[9])])
    assert [whole.covers(time, order) for time, order in ((3, 5), (3, 6), (25, 7), (25, 8), (25, 9), (15, 1))] == [
        True,
        False,
        True,
        True,
        False,
        False,
    ]


def test_an_area_that_spares_some_is_not_a_whole_one() -> None:
    assert ElementRange(2, 5, 7).is_within(ElementRange(0, 10, 7))
    assert not ElementRange(2, 5, 8).is_within(ElementRange(0, 10, 7))
    assert not ElementRange(2, 5, 7).is_within(ElementRange(0, 10, 7, frozenset({3})))


def test_graves_with_nothing_open_between_become_one() -> None:
    graves = add_tombstone((), Window(0, 10), 5, [Window(50, 60)])
    graves = add_tombstone(graves, Window(20, 30), 8, [Window(50, 60)])
    assert graves == (ElementRange(0, 30, 8),)
    graves = add_tombstone(graves, Window(70, 80), 9, [Window(50, 60)])
    assert graves == (ElementRange(0, 30, 8), ElementRange(70, 80, 9))
    assert add_tombstone(graves, Window(50, 60), 12, []) == (ElementRange(0, 80, 12),)
    assert add_tombstone((ElementRange(0, 10, 5),), Window(40, 50), 9, [Window(5, 20)]) == (ElementRange(0, 10, 5), ElementRange(40, 50, 9))
