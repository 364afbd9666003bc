"""A source's time state from epoch to epoch, an epoch's observations of it, and its form in a record."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from tidemark.errors import CorruptStoreError, FormatError
from tidemark.semantics.watermarks.watermark_strategy import MIN_WATERMARK

_FIX = "restore the record from a backup of the job store; if a newer release wrote it, run that release"


@dataclass(frozen=True)
class SplitObservation:
    """One epoch's observation of a split.

    ``rows`` counts well-formed rows only, and ``max_event_time`` and ``metrics`` are theirs: a malformed row moves no watermark and
    keeps no split awake. ``caught_up`` says whether the split was read to its end; None takes the source's answer.
    """

    rows: int
    max_event_time: int | None
    metrics: Mapping[str, int | None] = field(default_factory=dict)
    caught_up: bool | None = None


@dataclass(frozen=True)
class SourceEnd:
    """How far an epoch read a source: to its end or not, as a whole and, where that is known, by split.

    ``polled_at`` is the processing time at which that was true, None for the epoch's own: a drain fixes its input when it begins.
    ``known`` is false if the input read does not show it, and ``caught_up`` is then the safer answer. ``holds_watermark``: the
    rows that are left to read may be older than any bound, as those of a table's snapshot, so the watermark stays.
    """

    caught_up: bool = True
    splits: Mapping[str, bool] = field(default_factory=dict)
    polled_at: int | None = None
    known: bool = True
    holds_watermark: bool = False

    def annotate(self, observed: Mapping[str, SplitObservation], state: SourceState) -> dict[str, SplitObservation]:
        """Return an epoch's observations with the known end of each split; only splits that ever had rows count."""
        annotated = dict(observed)
        for split, caught_up in self.splits.items():
            if split in observed or split in state.splits:
                annotated[split] = replace(annotated.get(split, SplitObservation(0, None)), caught_up=caught_up)
        return annotated


@dataclass(frozen=True)
class SplitState:
    """The state of one split.

    ``last_active`` is the processing time at which it last had a row or more to read, ``rows`` the count of well-formed rows since it was
    first seen.
    """

    watermark: int = MIN_WATERMARK
    max_event_time: int | None = None
    last_active: int = 0
    idle: bool = False
    rows: int = 0


@dataclass(frozen=True)
class SourceState:
    """The state of one source; part of each epoch's record.

    ``splits`` is empty before the first epoch. A source without splits has the one split ``""``; it also replaces the splits of a
    source of which none was seen yet. ``advancing``: all splits are idle and the watermark advances with the clock (``advance_when_idle``).
    ``split_by``: the column that defines the splits, None if the source has its own or none; records of older builds have None.
    """

    splits: Mapping[str, SplitState] = field(default_factory=dict)
    watermark: int = MIN_WATERMARK
    advancing: bool = False
    split_by: str | None = None

    @property
    def idle(self) -> bool:
        """Whether all its splits are idle; false before the first epoch."""
        return bool(self.splits) and all(split.idle for split in self.splits.values())


def encode_source(state: SourceState) -> dict[str, object]:
    """Return the state as plain data for JSON; splits in the order of their names, so that equal states give equal text."""
    return {
        "watermark": state.watermark,
        "advancing": state.advancing,
        "splits": {
            name: {
                "watermark": split.watermark,
                "max_event_time": split.max_event_time,
                "last_active": split.last_active,
                "idle": split.idle,
                "rows": split.rows,
            }
            for name, split in sorted(state.splits.items())
        },
        **({"split_by": state.split_by} if state.split_by is not None else {}),
    }


def decode_source(data: object, *, place: str | None = None) -> SourceState:
    """Return the state that ``encode_source`` encoded.

    Args:
        data: the decoded JSON.
        place: path of the record, for errors.

    Raises:
        FormatError: a key that this release does not know.
        CorruptStoreError: a key is missing or a value has the wrong type.
    """
    found = _fields(data, ("watermark", "advancing", "splits"), "source state", place, later=("split_by",))
    split_by = found.get("split_by")
    if not isinstance(split_by, str | None):
        raise CorruptStoreError(f"split_by={split_by!r} is no text", fix=_FIX, place=place)
    splits = found["splits"]
    if not isinstance(splits, Mapping):
        raise CorruptStoreError("splits of a source state are no object", fix=_FIX, place=place)
    return SourceState(
        splits={str(name): _decode_split(split, place) for name, split in splits.items()},
        watermark=_whole(found["watermark"], "watermark", place),
        advancing=_flag(found["advancing"], "advancing", place),
        split_by=split_by,
    )


def _decode_split(data: object, place: str | None) -> SplitState:
    found = _fields(data, ("watermark", "max_event_time", "last_active", "idle", "rows"), "split state", place)
    latest = found["max_event_time"]
    return SplitState(
        watermark=_whole(found["watermark"], "watermark", place),
        max_event_time=None if latest is None else _whole(latest, "max_event_time", place),
        last_active=_whole(found["last_active"], "last_active", place),
        idle=_flag(found["idle"], "idle", place),
        rows=_whole(found["rows"], "rows", place),
    )


def _fields(data: object, names: tuple[str, ...], what: str, place: str | None, *, later: tuple[str, ...] = ()) -> Mapping[str, object]:
    if not isinstance(data, Mapping):
        raise CorruptStoreError(f"a {what} is no object but {data!r}", fix=_FIX, place=place)
    unknown = sorted(str(name) for name in data if name not in (*names, *later))
    if unknown:
        raise FormatError(f"a {what} has fields unknown to this release: {', '.join(unknown)}", fix=_FIX, place=place)
    missing = [name for name in names if name not in data]
    if missing:
        raise CorruptStoreError(f"a {what} lacks {', '.join(missing)}", fix=_FIX, place=place)
    return data


def _whole(value: object, name: str, place: str | None) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise CorruptStoreError(f"{name}={value!r} is no whole number", fix=_FIX, place=place)
    return value


def _flag(value: object, name: str, place: str | None) -> bool:
    if not isinstance(value, bool):
        raise CorruptStoreError(f"{name}={value!r} is neither true nor false", fix=_FIX, place=place)
    return value
