"""The temporal (as-of) join: which version a left element meets, when it is answered, what is late, and when state is dropped.

A left element of time ``t`` meets the version of its key with the greatest time ``<= t``; of versions of one time the later by source
position. Three bounds follow from the watermarks after an epoch, and none of them goes back:

- ``answered`` (A): left elements up to it are answered. It is the greater of the right input's own watermark and the operator's. The
  operator's is the least of the active inputs: it is greater where the right input is idle, which so holds nobody back. When both inputs
  are idle neither moves, and left elements wait.
- ``corrected`` (C): ``A - L``, ``L`` the allowed lateness. A version that comes when a left element with ``C < t <= A`` was answered
  corrects the answer. Without allowed lateness nothing is corrected.
- ``gone`` (G): the lesser of the operator's watermark and ``C``. On-time left elements come after the operator's watermark, waiting ones
  are after A, and those that can be corrected are after C, so that only times after G are asked of state. Of the versions of a key up to
  G only the newest is kept, the key's *base*.

An element of either side is late when its time is not after G and the key has a base that is newer: for a left element the versions
before the base are gone; a version before the base cannot be the answer to anything that is asked. A left element not after G whose key
has an earlier base, or none, is answered exactly, and accepted. After the end of input nothing is kept, and everything is late.

Elements are compared with the bounds and bases after the epoch before, whatever their order in the epoch. An element whose key has a null
meets nothing, and is never late before the end of input.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from tidemark.semantics.watermarks.watermark_strategy import MAX_WATERMARK, MIN_WATERMARK, clamp_watermark

E = TypeVar("E")
V = TypeVar("V")

Key = tuple[Hashable, ...]


@dataclass(frozen=True)
class AsofBounds:
    """The bounds after an epoch, and the right input's own watermark, in milliseconds.

    >>> bounds = AsofBounds().advanced(watermark=40, right=60, allowed_lateness_ms=5)
    >>> bounds.answered, bounds.corrected, bounds.gone
    (60, 55, 40)
    >>> bounds.is_late(30, base=35), bounds.is_late(38, base=35), bounds.is_late(30, base=None)
    (True, False, False)
    """

    right: int = MIN_WATERMARK
    answered: int = MIN_WATERMARK
    corrected: int = MIN_WATERMARK
    gone: int = MIN_WATERMARK

    def advanced(self, *, watermark: int, right: int, allowed_lateness_ms: int) -> AsofBounds:
        """Return the bounds after the next epoch.

        Args:
            watermark: the operator's, W(n).
            right: that of the right input alone, which does not go back.
            allowed_lateness_ms: how long after an answer a version may correct it.
        """
        answered = max(self.answered, watermark, right)
        if watermark == MAX_WATERMARK:
            return AsofBounds(right, MAX_WATERMARK, MAX_WATERMARK, MAX_WATERMARK)
        corrected = max(self.corrected, clamp_watermark(answered - allowed_lateness_ms))
        return AsofBounds(right, answered, corrected, max(self.gone, min(watermark, corrected)))

    @property
    def ended(self) -> bool:
        """Whether the input has ended, so that nothing is kept."""
        return self.gone == MAX_WATERMARK

    def is_late(self, time: int, base: int | None) -> bool:
        """Return whether an element of either side is late.

        Args:
            time: its event time.
            base: the time of the newest version of its key that is not after ``gone``, None where there is none.
        """
        return self.ended or (time <= self.gone and base is not None and time < base)

    def is_corrected(self, time: int) -> bool:
        """Return whether the answer of a left element is still corrected."""
        return self.corrected < time <= self.answered


@dataclass(frozen=True)
class Answer(Generic[E, V]):
    """The answer of a left element: its version before the epoch, and after it; None where there is none.

    ``first`` says that it was not answered before.
    """

    element: E
    time: int
    before: V | None
    after: V | None
    first: bool


@dataclass(frozen=True)
class _Version(Generic[V]):
    time: int
    position: tuple[int, ...]
    version: V

    @property
    def order(self) -> tuple[int, tuple[int, ...]]:
        return self.time, self.position


@dataclass
class _Epoch(Generic[E, V]):
    """What came in the epoch."""

    lefts: list[tuple[Key, int, E]] = field(default_factory=list)
    rights: dict[Key, list[_Version[V]]] = field(default_factory=dict)


class AsofByElement(Generic[E, V]):
    """A reference of the contract, one element at a time: tests compare the engine with it.

    Args:
        allowed_lateness_ms: as of ``AsofBounds.advanced``.
    """

    def __init__(self, allowed_lateness_ms: int = 0) -> None:
        self._lateness = allowed_lateness_ms
        self._bounds = AsofBounds()
        self._lefts: list[tuple[Key, int, E]] = []
        self._versions: dict[Key, list[_Version[V]]] = {}
        self._new: _Epoch[E, V] = _Epoch()

    def resume(self, kept: AsofByElement[E, V]) -> None:
        """Resume from what a join kept that may have been declared otherwise."""
        self._bounds, self._lefts, self._versions = kept._bounds, kept._lefts, kept._versions

    @property
    def bounds(self) -> AsofBounds:
        """The bounds after the epoch before."""
        return self._bounds

    def left(self, key: Key, time: int, element: E) -> bool:
        """Process a left element; return whether it is accepted, not late."""
        if self._is_late(key, time):
            return False
        self._new.lefts.append((key, time, element))
        return True

    def right(self, key: Key, time: int, position: tuple[int, ...], version: V) -> bool:
        """Process a version; return whether it is accepted, not late."""
        if self._is_late(key, time):
            return False
        if None not in key:
            self._new.rights.setdefault(key, []).append(_Version(time, position, version))
        return True

    def advance(self, watermark: int, right: int) -> list[Answer[E, V]]:
        """End the epoch; return the answers that are new, and those whose version is another one now.

        Args:
            watermark: the operator's.
            right: that of the right input.
        """
        before, came = self._bounds, self._new
        self._bounds = before.advanced(watermark=watermark, right=right, allowed_lateness_ms=self._lateness)
        old = {key: list(versions) for key, versions in self._versions.items()}
        for key, versions in came.rights.items():
            self._versions.setdefault(key, []).extend(versions)
        found = []
        for key, time, element in self._lefts:
            if before.answered < time <= self._bounds.answered:
                found.append(Answer(element, time, None, _newest(self._versions.get(key, ()), time), first=True))
            elif time <= before.answered:
                earlier, now = _newest(old.get(key, ()), time), _newest(self._versions.get(key, ()), time)
                if earlier != now:
                    found.append(Answer(element, time, earlier, now, first=False))
        for key, time, element in came.lefts:
            if time <= self._bounds.answered:
                found.append(Answer(element, time, None, _newest(self._versions.get(key, ()), time), first=True))
        self._drop([*self._lefts, *came.lefts])
        self._new = _Epoch()
        return found

    def lefts(self) -> list[tuple[Key, int, E]]:
        """Return the left elements in state: those that wait, and those whose answers are still corrected."""
        return list(self._lefts)

    def versions(self) -> list[tuple[Key, int, V]]:
        """Return the versions in state."""
        return [(key, each.time, each.version) for key, versions in self._versions.items() for each in versions]

    def _is_late(self, key: Key, time: int) -> bool:
        gone = [each.time for each in self._versions.get(key, ()) if each.time <= self._bounds.gone]
        return self._bounds.is_late(time, max(gone, default=None))

    def _drop(self, lefts: list[tuple[Key, int, E]]) -> None:
        bounds = self._bounds
        self._lefts = [each for each in lefts if each[1] > bounds.corrected]
        for key, versions in list(self._versions.items()):
            base = max((each for each in versions if each.time <= bounds.gone), key=lambda each: each.order, default=None)
            kept = [] if bounds.ended else [each for each in versions if each.time > bounds.gone or each is base]
            self._versions[key] = kept
            if not kept:
                del self._versions[key]


def _newest(versions: list[_Version[V]] | tuple[()], time: int) -> V | None:
    """Return the version that an element of a time meets."""
    found = max((each for each in versions if each.time <= time), key=lambda each: each.order, default=None)
    return None if found is None else found.version
