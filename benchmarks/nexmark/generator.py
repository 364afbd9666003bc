"""Nexmark's events: people, auctions and bids, each a function of its number, so that any slice can be made anywhere.

Of fifty events one is a person, three are auctions, the rest are bids. Identifiers start at ``FIRST_ID``.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

FIRST_ID: Final = 1000
BASE_US: Final = 1_436_918_400_000_000
RATE: Final = 10_000
"""Events per second of event time."""

OUT_OF_ORDER: Final = 1_000
"""Events of one group are emitted in another order."""

BOUND: Final = "4 seconds"

_EVENTS: Final = 50
_AUCTIONS: Final = 3
_HOT_BLOCK: Final = 100
_IN_FLIGHT: Final = 100
_AHEAD: Final = 10
_ACTIVE: Final = 1_000
_CHANNELS: Final = 10_000
_STATES: Final = np.array(["AZ", "CA", "ID", "OR", "WA", "WY"])
_CITIES: Final = np.array(
    ["Phoenix", "Los Angeles", "San Francisco", "Boise", "Portland", "Bend", "Redmond", "Seattle", "Kent", "Cheyenne"]
)
_HOT_CHANNELS: Final = np.array(["Google", "Facebook", "Baidu", "Apple"])

PERSON: Final = "id BIGINT, name STRING, email STRING, city STRING, state STRING, date_time TIMESTAMP"
AUCTION: Final = (
    "id BIGINT, item STRING, initial_bid BIGINT, reserve BIGINT, date_time TIMESTAMP, expires TIMESTAMP, seller BIGINT, category BIGINT"
)
BID: Final = "bid_id BIGINT, auction BIGINT, bidder BIGINT, price BIGINT, channel STRING, url STRING, date_time TIMESTAMP"

Longs = np.ndarray[Any, np.dtype[np.int64]]
Doubles = np.ndarray[Any, np.dtype[np.float64]]


@dataclass(frozen=True)
class Events:
    """A slice of the stream, as tables with the columns of ``PERSON``, ``AUCTION`` and ``BID``."""

    persons: pa.Table
    auctions: pa.Table
    bids: pa.Table


def events(first: int, count: int, *, seed: int = 1) -> Events:
    """Return the events that are emitted at positions ``first`` to ``first + count``."""
    position = np.arange(first, first + count, dtype=np.int64)
    number = position // OUT_OF_ORDER * OUT_OF_ORDER + (position * 953) % OUT_OF_ORDER
    kind = number % _EVENTS
    return Events(
        _persons(number[kind == 0], seed),
        _auctions(number[(kind >= 1) & (kind <= _AUCTIONS)], seed),
        _bids(number[kind > _AUCTIONS], seed),
    )


def write_events(folder: Path, total: int, *, files: int, seed: int = 1) -> None:
    """Write all events below ``persons``, ``auctions`` and ``bids``, as Parquet files, of which each epoch reads one of each."""
    for each in ("persons", "auctions", "bids"):
        (folder / each).mkdir(parents=True)
    size = -(-total // files)
    for file in range(files):
        made = events(file * size, min(size, total - file * size), seed=seed)
        for name in ("persons", "auctions", "bids"):
            pq.write_table(getattr(made, name), folder / name / f"{file:05}.parquet")


def _uniform(number: Longs, salt: int, seed: int) -> Doubles:
    """Return a number in [0, 1) for each event: the bits of a hash of its number."""
    with np.errstate(over="ignore"):
        mixed = number.astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15) + np.uint64((salt * 0xD1B54A32D192ED03 + seed) & (2**64 - 1))
        for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
            mixed = (mixed ^ (mixed >> np.uint64(shift))) * np.uint64(factor)
        mixed ^= mixed >> np.uint64(31)
    return (mixed >> np.uint64(11)).astype(np.float64) / float(1 << 53)


def _between(number: Longs, salt: int, seed: int, low: Longs, high: Longs) -> Longs:
    """Return a whole number in [low, high] for each event."""
    return low + np.floor(_uniform(number, salt, seed) * (high - low + 1)).astype(np.int64)


def _times(number: Longs) -> Longs:
    return BASE_US + number * (1_000_000 // RATE)


def _timestamps(times: Longs) -> pa.Array:
    return pa.array(times, pa.timestamp("us", "UTC"))


def _last_person(number: Longs) -> Longs:
    """Return the number of the newest person, from 0."""
    return number // _EVENTS


def _last_auction(number: Longs) -> Longs:
    """Return the number of the newest auction, from 0; -1 before the first."""
    return number // _EVENTS * _AUCTIONS + np.clip(number % _EVENTS, 0, _AUCTIONS) - 1


def _cold_person(number: Longs, salt: int, seed: int) -> Longs:
    last = _last_person(number)
    return _between(number, salt, seed, np.maximum(0, last - _ACTIVE + 1), last + _AHEAD)


def _price(number: Longs, salt: int, seed: int) -> Longs:
    return np.round(100 * 10 ** (6 * _uniform(number, salt, seed))).astype(np.int64)


def _texts(prefix: str, values: Longs) -> pa.Array:
    return pc.binary_join_element_wise(prefix, pa.array(values).cast(pa.string()), "")


def _persons(number: Longs, seed: int) -> pa.Table:
    ids = FIRST_ID + _last_person(number)
    city = np.floor(_uniform(number, 1, seed) * len(_CITIES)).astype(np.int64)
    state = np.floor(_uniform(number, 2, seed) * len(_STATES)).astype(np.int64)
    return pa.table(
        {
            "id": ids,
            "name": _texts("person ", ids),
            "email": _texts("mail-", ids),
            "city": _CITIES[city],
            "state": _STATES[state],
            "date_time": _timestamps(_times(number)),
        }
    )


def _auctions(number: Longs, seed: int) -> pa.Table:
    ids = FIRST_ID + _last_auction(number)
    initial = _price(number, 3, seed)
    times = _times(number)
    hot = _last_person(number) // _HOT_BLOCK * _HOT_BLOCK
    seller = np.where(_uniform(number, 4, seed) < 3 / 4, hot, _cold_person(number, 5, seed))
    longest = 2 * _IN_FLIGHT * _EVENTS // _AUCTIONS * (1_000_000 // RATE)
    expires = times + 1_000 + _between(number, 6, seed, np.zeros_like(number), np.full_like(number, longest))
    return pa.table(
        {
            "id": ids,
            "item": _texts("item ", ids),
            "initial_bid": initial,
            "reserve": initial + _price(number, 7, seed),
            "date_time": _timestamps(times),
            "expires": _timestamps(expires),
            "seller": FIRST_ID + seller,
            "category": 10 + np.floor(_uniform(number, 8, seed) * 5).astype(np.int64),
        }
    )


def _bids(number: Longs, seed: int) -> pa.Table:
    last = _last_auction(number)
    cold = _between(number, 9, seed, np.maximum(0, last - _IN_FLIGHT), last + _AHEAD)
    auction = np.where(_uniform(number, 10, seed) < 1 / 2, last // _HOT_BLOCK * _HOT_BLOCK, cold)
    hot_bidder = _last_person(number) // _HOT_BLOCK * _HOT_BLOCK + 1
    bidder = np.where(_uniform(number, 11, seed) < 3 / 4, hot_bidder, _cold_person(number, 12, seed))
    channel = np.floor(_uniform(number, 13, seed) * _CHANNELS).astype(np.int64)
    hot = _uniform(number, 14, seed) < 1 / 2
    names = pc.if_else(pa.array(hot), pa.array(_HOT_CHANNELS[channel % len(_HOT_CHANNELS)]), _texts("channel-", channel))
    return pa.table(
        {
            "bid_id": number,
            "auction": FIRST_ID + auction,
            "bidder": FIRST_ID + bidder,
            "price": _price(number, 15, seed),
            "channel": names,
            "url": _urls(number, channel, hot, seed),
            "date_time": _timestamps(_times(number)),
        }
    )


def _urls(number: Longs, channel: Longs, hot: np.ndarray[Any, np.dtype[np.bool_]], seed: int) -> pa.Array:
    folders = [pa.array(np.floor(_uniform(number, 16 + part, seed) * 1_000).astype(np.int64)).cast(pa.string()) for part in range(3)]
    plain = pc.binary_join_element_wise("https://www.nexmark.com", *folders, "item.htm?query=1", "/")
    named = pc.binary_join_element_wise(plain, pa.array(channel).cast(pa.string()), "&channel_id=")
    return pc.if_else(pa.array(~hot & (_uniform(number, 19, seed) < 9 / 10)), named, plain)
