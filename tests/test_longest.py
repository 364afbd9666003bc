"""The longest files of tests begin first."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.longest import LONGEST_FILES, place_in_run

TOP = Path(__file__).parents[1]


def test_the_longest_files_are_there() -> None:
    assert [file for file in LONGEST_FILES if not (TOP / file).is_file()] == []


def test_the_longest_come_first_and_all_others_keep_their_order() -> None:
    others = ["tests/web/test_access.py", "tests/aggregates/test_a.py", "platform/tidemark/clock.py"]
    given = [others[0], LONGEST_FILES[1], others[1], LONGEST_FILES[0], others[2]]
    assert sorted(given, key=place_in_run) == [LONGEST_FILES[0], LONGEST_FILES[1], *others]


def test_items_of_a_run_are_put_into_that_order(request: pytest.FixtureRequest) -> None:
    places = [place_in_run(item.location[0]) for item in request.session.items]
    assert places == sorted(places)
