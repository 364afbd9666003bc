"""The queries that ``tm.sql`` covers, as SQL over the three streams, whose rows have keys."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import tidemark as tm
from benchmarks.nexmark.queries import Streams

_VALID = """SELECT b.bid_id, b.auction, b.bidder, b.price, b.date_time AS bid_time, a.id, a.category, a.seller, a.date_time, a.expires
    FROM bids b JOIN auctions a ON b.auction = a.id WHERE b.date_time BETWEEN a.date_time AND a.expires"""

_WINNING = f"""SELECT bid_id, auction, bidder, price, bid_time, id, category, seller, date_time, expires FROM (
    SELECT *, ROW_NUMBER() OVER (PARTITION BY id ORDER BY price DESC, bid_time) AS nth FROM ({_VALID}) AS valid) AS ranked WHERE nth = 1"""

SQL: Final[Mapping[str, str]] = {
    "q3": """SELECT a.id AS auction, a.seller, p.id, p.name, p.city, p.state FROM auctions a JOIN persons p ON a.seller = p.id
        WHERE a.category = 10 AND p.state IN ('OR', 'ID', 'CA')""",
    "q4": f"""SELECT category, avg(highest) AS average FROM (
        SELECT id, category, max(price) AS highest FROM ({_VALID}) AS valid GROUP BY id, category) AS auction GROUP BY category""",
    "q6": f"""SELECT seller, avg(price) AS average FROM (
        SELECT *, ROW_NUMBER() OVER (PARTITION BY seller ORDER BY expires DESC, id DESC) AS latest FROM ({_WINNING}) AS winning
        ) AS sold WHERE latest <= 11 GROUP BY seller""",
    "q9": _WINNING,
    "q18": """SELECT bid_id, auction, bidder, price, channel, url, date_time FROM (
        SELECT *, ROW_NUMBER() OVER (PARTITION BY bidder, auction ORDER BY date_time DESC) AS nth FROM bids) AS ranked WHERE nth = 1""",
    "q19": """SELECT auction, bidder, price, bid_id, rank FROM (
        SELECT *, ROW_NUMBER() OVER (PARTITION BY auction ORDER BY price DESC, bid_id) AS rank FROM bids) AS ranked WHERE rank <= 10""",
    "q20": """SELECT b.bid_id, b.auction, b.bidder, b.price, a.id, a.item, a.seller FROM bids b JOIN auctions a ON b.auction = a.id
        WHERE a.category = 10""",
    "q23": """SELECT b.bid_id, b.bidder, b.price, p.id, p.name, a.seller, a.id AS own_auction
        FROM bids b JOIN persons p ON b.bidder = p.id JOIN auctions a ON a.seller = b.bidder""",
}
"""By query. ``q7``, ``q8`` and ``q13`` have windows or tables, which ``tm.sql`` does not cover."""


def sql_queries(events: Streams) -> dict[str, tm.Stream]:
    """Return the streams that answer the queries, by query."""
    keyed = {
        "persons": events.persons.as_changelog(["id"]),
        "auctions": events.auctions.as_changelog(["id"]),
        "bids": events.bids.as_changelog(["bid_id"]),
    }
    return {name: tm.sql(query, uid=f"{name}-sql", **keyed) for name, query in SQL.items()}
