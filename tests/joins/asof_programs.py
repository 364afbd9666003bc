"""Random programs of temporal joins: elements of both sides in epochs, and what each epoch answers, worked out without the engine."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, field

Element = tuple[int, str | None, int]
"""Event time in milliseconds, key, and a number that tells elements apart."""

Row = tuple[int, str | None, int, int | None]
"""Time, key and number of a left element, and the number of its version."""

MIN = -(2**63)
MAX = 2**63 - 1


@dataclass(frozen=True)
class Program:
    """The epochs of both sides, with the bounds of their sources."""

    lefts: tuple[tuple[Element, ...], ...]
    rights: tuple[tuple[Element, ...], ...]
    left_bound: int
    right_bound: int


@dataclass
class Expected:
    """What an epoch does: rows that are new, and rows that take the place of others (None: there was none), and late numbers."""

    new: list[Row] = field(default_factory=list)
    corrected: list[tuple[Row | None, Row]] = field(default_factory=list)
    late_lefts: list[int] = field(default_factory=list)
    late_rights: list[int] = field(default_factory=list)


def random_program(seed: int, *, epochs: int = 6, keys: int = 6) -> Program:
    """Return a program: sides that run ahead of each other, ties, late elements, epochs without input of one side or both."""
    chosen = random.Random(seed)
    names: list[str | None] = [*(f"k{number}" for number in range(keys)), None]
    number = iter(range(1_000_000))

    def side(pace: int, ahead: int) -> tuple[tuple[Element, ...], ...]:
        found = []
        for epoch in range(epochs):
            rows = 0 if chosen.random() < 0.2 else chosen.randrange(5, 40)
            base = epoch * pace + ahead
            times = [base + chosen.randrange(20) - (chosen.randrange(40) if chosen.random() < 0.3 else 0) for _ in range(rows)]
            found.append(tuple((time, chosen.choice(names), next(number)) for time in times))
        return tuple(found)

    lefts, rights = side(15, chosen.choice([0, 10])), side(15, chosen.choice([-10, 0, 15]))
    return Program(lefts, rights, chosen.choice([0, 5]), chosen.choice([0, 5, 12]))


def recut(program: Program, seed: int) -> Program:
    """Return the same elements in the same order, cut into other epochs."""
    chosen = random.Random(seed)

    def cut(epochs: Sequence[Sequence[Element]]) -> tuple[tuple[Element, ...], ...]:
        every = [element for epoch in epochs for element in epoch]
        places = sorted(chosen.randrange(len(every) + 1) for _ in range(4))
        return tuple(tuple(every[low:high]) for low, high in zip([0, *places], [*places, len(every)], strict=True))

    return Program(cut(program.lefts), cut(program.rights), program.left_bound, program.right_bound)


def expected(program: Program, lateness: int) -> list[Expected]:
    """Return what each epoch does, the last with the end of input.

    Written from the contract alone: nothing is ever dropped, and the newest version is looked for among all that were accepted.
    """
    lefts: list[tuple[Element, int | None]] = []
    versions: dict[str, list[tuple[int, int]]] = {}
    seen = {"left": MIN, "right": MIN}
    answered, corrected, gone = MIN, MIN, MIN
    found = []
    count = len(program.lefts)
    waiting: list[Element] = []
    for epoch in range(count):
        result = Expected()
        bases = {key: max((time for time, _ in known if time <= gone), default=None) for key, known in versions.items()}

        def is_late(element: Element, bases: dict[str, int | None] = bases, gone: int = gone) -> bool:
            base = bases.get(element[1] or "")
            return element[0] <= gone and base is not None and element[0] < base

        came = [element for element in program.lefts[epoch] if not is_late(element)]
        result.late_lefts = [element[2] for element in program.lefts[epoch] if is_late(element)]
        for element in program.rights[epoch]:
            if is_late(element):
                result.late_rights.append(element[2])
            elif element[1] is not None:
                versions.setdefault(element[1], []).append((element[0], element[2]))
        for name, elements, bound in (
            ("left", program.lefts[epoch], program.left_bound),
            ("right", program.rights[epoch], program.right_bound),
        ):
            seen[name] = max([seen[name], *(element[0] - bound - 1 for element in elements)])
        if epoch == count - 1:
            seen = {"left": MAX, "right": MAX}
        before, earlier_corrected = answered, corrected
        watermark = min(seen.values())
        answered = max(answered, watermark, seen["right"])
        corrected = max(corrected, answered - lateness if answered > MIN + lateness else MIN)
        gone = max(gone, min(watermark, corrected))
        again = []
        for element, version in lefts:
            now = _met(versions, element)
            if earlier_corrected < element[0] <= before and now != version:
                was = None if version is None else (*element, version)
                result.corrected.append(((*element, None) if was is None else was, (*element, now)))
                again.append((element, now))
            else:
                again.append((element, version))
        due = [element for element in [*waiting, *came] if element[0] <= answered]
        waiting = [element for element in [*waiting, *came] if element[0] > answered]
        met = [(element, _met(versions, element)) for element in due]
        result.new = [(*element, version) for element, version in met]
        lefts = [*again, *met]
        found.append(result)
    return found


def _met(versions: dict[str, list[tuple[int, int]]], element: Element) -> int | None:
    """Return the number of the version that an element meets; numbers grow with the place in the source."""
    known = versions.get(element[1], []) if element[1] is not None else []
    return max((version for version in known if version[0] <= element[0]), default=(0, None))[1]
