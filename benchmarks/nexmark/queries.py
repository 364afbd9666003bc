"""Nexmark's queries that join, rank or revise, in Tidemark. Each takes the three streams, and returns the one that answers it.

Results that are revised are changelogs; the others are only added to.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import tidemark as tm
from benchmarks.nexmark.generator import AUCTION, BID, BOUND, PERSON


@dataclass(frozen=True)
class Streams:
    """The events as streams."""

    persons: tm.Stream
    auctions: tm.Stream
    bids: tm.Stream


def streams(folder: Path, *, files_per_epoch: int = 1) -> Streams:
    """Return the streams of events that ``write_events`` wrote."""

    def source(name: str, schema: str) -> tm.Stream:
        files = tm.files(str(folder / name), format="parquet", schema=schema, max_files_per_epoch=files_per_epoch)
        return tm.source(name, files, watermarks=tm.bounded_out_of_orderness(BOUND, timestamp="date_time"))

    return Streams(source("persons", PERSON), source("auctions", AUCTION), source("bids", BID))


def q3(events: Streams) -> tm.Stream:
    """Who sells in category 10, of three states."""
    auctions = events.auctions.filter("category = 10").select(auction="id", seller="seller").as_changelog(["auction"])
    persons = events.persons.filter("state IN ('OR', 'ID', 'CA')").select("id", "name", "city", "state").as_changelog(["id"])
    return auctions.join(persons, on={"seller": "id"}).uid("q3")


def _valid_bids(events: Streams, uid: str) -> tm.Stream:
    """Return bids within the time of their auctions, with these."""
    bids = events.bids.select("bid_id", "auction", "bidder", "price", bid_time="date_time").as_changelog(["bid_id"])
    auctions = events.auctions.select("id", "category", "seller", "date_time", "expires").as_changelog(["id"])
    joined = bids.join(auctions, on={"auction": "id"}).uid(uid)
    return joined.filter("bid_time BETWEEN date_time AND expires")


def q4(events: Streams) -> tm.Stream:
    """The average of the highest valid bids, by category."""
    highest = _valid_bids(events, "q4-bids").key_by("id", "category").aggregate(highest=tm.max("price")).uid("q4-highest")
    return highest.key_by("category").aggregate(average=tm.avg("highest")).uid("q4")


def _winning_bids(events: Streams, uid: str) -> tm.Stream:
    """Return the highest valid bid of each auction; of equal ones the first."""
    return _valid_bids(events, f"{uid}-bids").top_n(1, by=["id"], order="price DESC, bid_time").uid(f"{uid}-winning")


def q6(events: Streams) -> tm.Stream:
    """The average price of a seller's auctions: the last one to expire, and ten before."""
    last = _winning_bids(events, "q6").top_n(11, by=["seller"], order="expires DESC, id DESC").uid("q6-last")
    return last.key_by("seller").aggregate(average=tm.avg("price")).uid("q6")


def q7(events: Streams) -> tm.Stream:
    """The bids with the highest price of each ten seconds."""
    highest = events.bids.window_all(tm.tumbling("10 seconds")).aggregate(highest=tm.max("price")).uid("q7-highest")
    maxima = highest.select("highest", "window_start", "window_end")
    found = events.bids.join(maxima, on={"price": "highest"}, within=("0 seconds", "10 seconds")).uid("q7-bids")
    return found.filter("date_time >= window_start AND date_time < window_end").select("auction", "price", "bidder", "date_time")


def q8(events: Streams) -> tm.Stream:
    """People who opened an auction within the ten seconds in which they came."""
    persons = events.persons.select("id", "name")
    sellers = events.auctions.select("seller")
    found = persons.window_join(sellers, on={"id": "seller"}, window=tm.tumbling("10 seconds"), how="semi").uid("q8")
    return found.select("id", "name")


def q9(events: Streams) -> tm.Stream:
    """The winning bid of each auction."""
    return _winning_bids(events, "q9")


def q13(events: Streams, table: tm.LookupTable) -> tm.Stream:
    """Bids with a value that a table has for their auction."""
    return (
        events.bids.with_columns(key="auction % 10000")
        .lookup(table, on="key", how="inner")
        .uid("q13")
        .select("bid_id", "auction", "price", "value")
    )


def q18(events: Streams) -> tm.Stream:
    """The last bid of each bidder for each auction."""
    return events.bids.latest(by=["bidder", "auction"], sequence="date_time").uid("q18")


def q19(events: Streams) -> tm.Stream:
    """The ten highest prices of each auction, with their rank."""
    bids = events.bids.select("auction", "bidder", "price", "bid_id")
    return bids.top_n(10, by=["auction"], order="price DESC, bid_id", rank="rank").uid("q19")


def q20(events: Streams) -> tm.Stream:
    """Bids for auctions of category 10, with these."""
    bids = events.bids.select("bid_id", "auction", "bidder", "price").as_changelog(["bid_id"])
    auctions = events.auctions.filter("category = 10").select("id", "item", "seller").as_changelog(["id"])
    return bids.join(auctions, on={"auction": "id"}).uid("q20")


def q23(events: Streams) -> tm.Stream:
    """Bids with their bidders, and the auctions that these sell."""
    bids = events.bids.select("bid_id", "bidder", "price").as_changelog(["bid_id"])
    persons = events.persons.select("id", "name").as_changelog(["id"])
    sold = events.auctions.select("seller", own_auction="id").as_changelog(["own_auction"])
    return bids.join(persons, on={"bidder": "id"}).uid("q23-bidders").join(sold, on={"bidder": "seller"}).uid("q23")


QUERIES: Final[Mapping[str, Callable[[Streams], tm.Stream]]] = {
    "q3": q3,
    "q4": q4,
    "q6": q6,
    "q7": q7,
    "q8": q8,
    "q9": q9,
    "q18": q18,
    "q19": q19,
    "q20": q20,
    "q23": q23,
}
"""All but ``q13``, which takes a table."""
