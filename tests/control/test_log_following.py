"""A log is followed through rotations, and no line is lost, cut in two, or told twice."""

from __future__ import annotations

from collections.abc import Callable
from itertools import islice
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidemark.control.launch.log_follower import LogFollower, follow_log
from tidemark.control.launch.logs import rotate
from tidemark.testing.manual_clock import ManualClock


def append(path: Path, text: str) -> None:
    with path.open("a", encoding="utf-8") as file:
        file.write(text)


class Writing(ManualClock):
    """A clock by which something is written whenever somebody waits."""

    def __init__(self, *steps: Callable[[], object]) -> None:
        super().__init__(0)
        self._steps = iter(steps)

    def sleep(self, seconds: float) -> None:
        super().sleep(seconds)
        next(self._steps)()


def test_the_last_lines_and_then_each_one_that_comes(tmp_path: Path) -> None:
    log = tmp_path / "driver.log"
    append(log, "one\ntwo\nthree\nha")

    def ends_one() -> None:
        append(log, "before")
        rotate(log)

    clock = Writing(
        lambda: append(log, "lf\n"),
        lambda: None,
        ends_one,
        lambda: append(log, "after\n"),
    )
    assert list(islice(follow_log(log, 2, clock=clock), 5)) == ["two", "three", "half", "before", "after"]


def test_a_log_that_comes_later_and_one_that_is_removed(tmp_path: Path) -> None:
    log = tmp_path / "driver.log"
    follower = LogFollower(log)
    assert follower.new_lines() == ()
    append(log, "one\n")
    assert follower.new_lines() == ("one",)
    log.unlink()
    assert follower.new_lines() == ()
    append(log, "two\n")
    assert follower.new_lines() == ("two",)
    follower.close()


@given(st.lists(st.tuples(st.sampled_from(["write", "write", "half", "rotate", "look"]), st.integers(1, 3)), max_size=30))
def test_every_line_is_told_once(tmp_path_factory: pytest.TempPathFactory, steps: list[tuple[str, int]]) -> None:
    log = tmp_path_factory.mktemp("log") / "driver.log"
    follower = LogFollower(log)
    wrote, found, open_line = 0, list[str](), False
    for kind, count in steps:
        if kind == "write":
            append(log, "".join(f"line {number}\n" for number in range(wrote, wrote + count)))
            wrote, open_line = wrote + count, False
        elif kind == "half" and not open_line:
            # Its end comes with the next write; a rotation comes between two lines.
            append(log, "half ")
            open_line = True
        elif kind == "rotate" and not open_line:
            found += follower.new_lines()
            rotate(log)
        elif kind == "look":
            found += follower.new_lines()
    append(log, "end\n")
    found += follower.new_lines()
    follower.close()
    assert [line.removeprefix("half ") for line in found] == [*(f"line {number}" for number in range(wrote)), "end"]
