"""The same queries over all events at once, as Spark SQL: what the streams have to come to."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

_VALID = """SELECT b.bid_id, b.auction, b.bidder, b.price, b.date_time AS bid_time, a.id, a.category, a.seller, a.date_time, a.expires
    FROM bids b JOIN auctions a ON b.auction = a.id WHERE b.date_time BETWEEN a.date_time AND a.expires"""

_WINNING = (
    f"""SELECT * FROM (SELECT *, row_number() OVER (PARTITION BY id ORDER BY price DESC, bid_time) AS nth FROM ({_VALID})) WHERE nth = 1"""
)

_WINDOW = "floor(unix_micros(date_time) / 10000000)"

BATCH: Final[Mapping[str, str]] = {
    "q3": """SELECT a.id AS auction, a.seller, p.id, p.name, p.city, p.state FROM auctions a JOIN persons p ON a.seller = p.id
        WHERE a.category = 10 AND p.state IN ('OR', 'ID', 'CA')""",
    "q4": f"""SELECT category, avg(highest) AS average FROM (
        SELECT id, category, max(price) AS highest FROM ({_VALID}) GROUP BY ALL) GROUP BY ALL""",
    "q6": f"""SELECT seller, avg(price) AS average FROM (
        SELECT *, row_number() OVER (PARTITION BY seller ORDER BY expires DESC, id DESC) AS latest FROM ({_WINNING})
        ) WHERE latest <= 11 GROUP BY ALL""",
    "q7": f"""SELECT auction, price, bidder, date_time FROM (
        SELECT *, max(price) OVER (PARTITION BY {_WINDOW}) AS highest FROM bids) WHERE price = highest""",
    "q8": f"""SELECT DISTINCT p.id, p.name FROM (SELECT *, {_WINDOW} AS w FROM persons) p JOIN (SELECT *, {_WINDOW} AS w FROM auctions) a
        ON p.id = a.seller AND p.w = a.w""",
    "q9": f"SELECT bid_id, auction, bidder, price, bid_time, id, category, seller, date_time, expires FROM ({_WINNING})",
    "q13": "SELECT b.bid_id, b.auction, b.price, t.value FROM bids b JOIN side_table t ON b.auction % 10000 = t.key",
    "q18": """SELECT * EXCEPT (nth) FROM (
        SELECT *, row_number() OVER (PARTITION BY bidder, auction ORDER BY date_time DESC) AS nth FROM bids) WHERE nth = 1""",
    "q19": """SELECT auction, bidder, price, bid_id, rank FROM (
        SELECT *, row_number() OVER (PARTITION BY auction ORDER BY price DESC, bid_id) AS rank FROM bids) WHERE rank <= 10""",
    "q20": """SELECT b.bid_id, b.auction, b.bidder, b.price, a.id, a.item, a.seller FROM bids b JOIN auctions a ON b.auction = a.id
        WHERE a.category = 10""",
    "q23": """SELECT b.bid_id, b.bidder, b.price, p.id, p.name, a.seller, a.id AS own_auction
        FROM bids b JOIN persons p ON b.bidder = p.id JOIN auctions a ON a.seller = b.bidder""",
}
"""By query."""
