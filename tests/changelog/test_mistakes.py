"""What may not be written of changelogs: each refusal names the step, and what to write instead."""

from __future__ import annotations

from collections.abc import Callable

import pytest

import tidemark as tm
from tidemark.errors import ColumnError, DefinitionError, ExpressionError, InvalidNameError

Written = Callable[[], object]


def sales() -> tm.Stream:
    """Return a stream of elements."""
    schema = "at TIMESTAMP, id INT, zone STRING, price DOUBLE, op STRING, tags MAP<STRING, INT>, items ARRAY<INT>"
    return tm.source("sales", tm.from_elements([], schema=schema), watermarks=tm.ascending(timestamp="at"))


def changes() -> tm.Stream:
    """Return a changelog."""
    return sales().as_changelog(["id"], operation="op")


def hourly() -> tm.Stream:
    """Return the results of windows."""
    return sales().key_by("zone").window(tm.tumbling("1 hour")).aggregate(n=tm.count()).uid("hourly")


def itself(element: dict[str, object], ctx: object) -> list[dict[str, object]]:
    """Return an element."""
    del ctx
    return [element]


async def called(row: dict[str, object]) -> dict[str, object]:
    """Return a row."""
    return row


STEPS: dict[str, tuple[Written, str, str]] = {
    "a lost key": (
        lambda: changes().select("zone", "price"),
        r"select leaves out 'id', part of the key of a changelog \(id\)",
        "keep 'id'",
    ),
    "a replaced key": (lambda: changes().with_columns(id="id + 1"), "with_columns replaces 'id'", "keep 'id'"),
    "a window": (
        lambda: changes().key_by("zone").window(tm.tumbling("1 hour")).aggregate(n=tm.count()),
        r"aggregate is given a changelog \(key: id\), and windows take streams that are only added to",
        r"\.key_by\(hour=.*\.aggregate\(\.\.\.\), whose results are revised.*\.as_elements\(\)",
    ),
    "a union": (lambda: changes().union(changes()), "union is no step over a changelog: a key could be in both", r"\.as_elements\(\)"),
    "a union with elements": (lambda: sales().union(changes()), "union is no step over a changelog", r"\.as_elements\(\)"),
    "map": (lambda: changes().map(dict, returns="id INT"), "a Python function is no step over a changelog", r"\.as_elements\(\)"),
    "flat_map": (lambda: changes().flat_map(lambda row: [row], returns="id INT"), "a Python function is no step", r"\.as_elements\(\)"),
    "explode": (
        lambda: changes().explode("items", as_="item"),
        "explode is no step over a changelog: several rows",
        "before the changelog",
    ),
    "transform": (lambda: changes().transform(lambda rows: rows), "transform is no step over a changelog", r"\.as_elements\(\)"),
    "a process function": (
        lambda: changes().key_by("id").process(itself, returns="id INT"),
        "process is given a changelog",
        r"\.as_elements\(\)",
    ),
    "a function of elements": (
        lambda: changes().process(itself, returns="id INT"),
        "process is given a changelog",
        r"\.as_elements\(\)",
    ),
    "async_map": (lambda: changes().async_map(called, returns="id INT"), "async_map is given a changelog", r"\.as_elements\(\)"),
    "deduplicate": (
        lambda: changes().key_by("zone").deduplicate(within="1 hour"),
        "deduplicate is given a changelog",
        r"\.as_elements\(\)",
    ),
    "latest of a changelog": (
        lambda: changes().latest(by=["zone"]),
        r"latest is given a changelog \(key: id\)",
        r"\.top_n\(1, by=\['zone'\]",
    ),
    "the last of a changelog": (
        lambda: changes().key_by("zone").deduplicate(keep="last"),
        r"deduplicate is given a changelog \(key: id\)",
        r"\.top_n\(1",
    ),
    "a random column": (
        lambda: changes().with_columns(u="price + rand()"),
        r"with_columns column 'u' = 'price \+ rand\(\)' uses 'rand', and is over a changelog",
        r"before the stream becomes a changelog: \.with_columns\(",
    ),
    "an id in a select": (lambda: changes().select("id", u="uuid()"), "uses 'uuid', and is over a changelog", "before the stream"),
    "the clock in a filter": (lambda: changes().filter("at < now()"), "filter condition 'at < now\\(\\)' uses 'now'", "before the stream"),
    "today in a split": (
        lambda: changes().split({tm.OutputTag("old"): "CAST(at AS DATE) < date'today'"}, otherwise=tm.OutputTag("new")),
        "uses 'today'",
        "before the stream",
    ),
    "tomorrow by a function": (lambda: changes().filter("to_date('tomorrow') > date(at)"), "uses 'tomorrow'", "before the stream"),
    "yesterday beside a time": (lambda: changes().filter("at >= 'yesterday'"), "uses 'yesterday'", "before the stream"),
    "today among times": (lambda: changes().filter("date(at) IN ('2026-01-01', ' Today ')"), "uses ' Today '", "before the stream"),
    "a random key": (lambda: changes().key_by(r="rand()").aggregate(n=tm.count()), "key 'r' = .* uses 'rand'", "before the stream"),
    "a random argument": (lambda: changes().aggregate_all(n=tm.sum("price * rand()")), "aggregate 'n' .* uses 'rand'", "before the stream"),
    "a random order": (lambda: changes().top_n(1, order="rand()", rank="r"), "top_n order .* uses 'rand'", "before the stream"),
    "a random part of a join": (
        lambda: changes().select("id", "zone").join(changes().select("id"), on={"id": "id + CAST(randn() AS INT)"}, how="semi"),
        "join of the right stream on .* uses 'randn'",
        "before the stream",
    ),
    "a changelog twice": (lambda: changes().as_changelog(["id"]), "as_changelog is given a changelog", "leave it out"),
    "no changelog": (lambda: sales().as_elements(), "as_elements is given a stream that is no changelog", "leave it out"),
}


@pytest.mark.parametrize("what", STEPS)
def test_a_step_that_is_none_over_changelogs(what: str) -> None:
    written, message, fix = STEPS[what]
    with pytest.raises(DefinitionError, match=rf"{message}.*test_mistakes\.py:\d+.*Fix: .*{fix}"):
        written()


def test_a_text_that_names_a_day_may_be_a_text() -> None:
    kept = changes().filter("zone = 'today' AND op IN ('now', 'x') AND concat(zone, 'tomorrow') <> ''")
    found = kept.with_columns(day="if(zone = 'a', 'today', zone)", first="at >= 'epoch'").aggregate_all(n=tm.count())
    assert found.uid("n").node.uid == "n"


TEXTS = [
    "CAST('now' AS STRING)",
    "upper(string('today'))",
    "CASE WHEN zone = 'a' THEN 'today' ELSE 'tomorrow' END",
    "concat('to', 'day')",
    "try_to_date(CASE WHEN zone = 'a' THEN 'today' ELSE zone END)",
    "year(at) = 2026 AND zone = 'now'",
    "date('todayish')",
    "at || ' now'",
    "at LIKE 'today' OR CAST(at AS STRING) RLIKE 'now'",
    "CASE at WHEN TIMESTAMP'2026-01-01' THEN 'today' ELSE 'other' END",
    "if(date(at) = at, 'today', 'other')",
    "to_date(zone, 'now')",
    "try_to_timestamp(zone, 'now')",
    "date_trunc('now', at)",
]


@pytest.mark.parametrize("text", TEXTS)
def test_a_text_that_spark_makes_no_time_of_is_kept(text: str) -> None:
    assert changes().with_columns(found=text).aggregate_all(n=tm.count()).uid("n").node.uid == "n"


TIMES = {
    "year('today')": "today",
    "hour('now')": "now",
    "date_part('year', 'today')": "today",
    "last_day('tomorrow')": "tomorrow",
    "date_add('today', 1)": "today",
    "datediff('today', date(at))": "today",
    "date(concat('to', 'day'))": "today",
    "CAST('n' || 'o' || 'w' AS TIMESTAMP)": "now",
    "to_date(('today'))": "today",
    "date(CASE WHEN true THEN 'today' END)": "today",
    "to_date(coalesce(NULL, 'today'))": "today",
    "date(trim(' today '))": " today ",
    "date('Today UTC')": "Today UTC",
    "CASE WHEN zone = 'a' THEN at ELSE 'now' END": "now",
    "if(zone = 'a', 'now', at)": "now",
    "at < concat('no', 'w')": "now",
    "at BETWEEN 'yesterday' AND at": "yesterday",
    "greatest(at, 'now')": "now",
    "date(at) - 'today'": "today",
    "CASE at WHEN 'now' THEN 'a' ELSE 'b' END": "now",
    "CASE 'now' WHEN at THEN 'a' ELSE 'b' END": "now",
    "CASE WHEN zone = 'a' THEN 'now' WHEN zone = 'b' THEN at END": "now",
    "at = CASE WHEN true THEN 'today' ELSE 'now' END": "today",
}


@pytest.mark.parametrize("text", TIMES)
def test_a_text_that_spark_makes_a_time_of_is_refused(text: str) -> None:
    with pytest.raises(DefinitionError, match=f"uses {TIMES[text]!r}, and is over a changelog"):
        changes().with_columns(found=text)


DECLARED: dict[str, tuple[Written, type[DefinitionError], str]] = {
    "no key": (lambda: sales().as_changelog([]), DefinitionError, r"as_changelog\(key=...\) is given \[\], not a list"),
    "an unknown key": (lambda: sales().as_changelog(["idd"]), ColumnError, "unknown column 'idd'; did you mean 'id'"),
    "a map as key": (lambda: sales().as_changelog(["tags"]), ColumnError, "maps cannot be compared"),
    "a key twice": (lambda: sales().as_changelog(["id", "ID"]), DefinitionError, "names a column twice"),
    "an operation of no text": (lambda: sales().as_changelog(["id"], operation="price"), ExpressionError, "of type DOUBLE, not the name"),
    "an unknown operation": (lambda: sales().as_changelog(["id"], operation="kind"), ColumnError, "unknown column 'kind'"),
    "a sequence of maps": (
        lambda: sales().as_changelog(["id"], operation="op", sequence="tags"),
        ExpressionError,
        "as_changelog sequence 'tags' is of type .*such values have no order",
    ),
    "a sequence of inserts": (lambda: sales().as_changelog(["id"], sequence="at"), DefinitionError, "each key has one"),
    "an operation column": (lambda: changes().as_elements(operation="price"), ColumnError, "has one already"),
    "no by": (lambda: sales().latest(by=[]), DefinitionError, r"latest\(by=...\) is given \[\]"),
    "an unknown by": (lambda: sales().latest(by="zones"), ColumnError, "unknown column 'zones'; did you mean 'zone'"),
    "a map as by": (lambda: sales().latest(by="tags"), ColumnError, "maps cannot be compared"),
    "an order of maps": (lambda: sales().latest(by="id", sequence="tags"), ExpressionError, "such values have no order"),
    "a sequence that is none": (lambda: sales().latest(by="id", sequence="max(at)"), ExpressionError, "sequence 'max\\(at\\)' uses"),
    "no condition": (lambda: sales().latest(by="id", deleted="op"), ExpressionError, "of type STRING, not BOOLEAN"),
    "outdated without order": (
        lambda: sales().latest(by="id", outdated_to=tm.OutputTag("old")),
        DefinitionError,
        r"latest\(outdated_to=...\) needs a sequence",
    ),
    "a text as ttl": (lambda: sales().latest(by="id", ttl="7 days"), DefinitionError, r"latest\(ttl='7 days'\) is no lifetime"),  # type: ignore[arg-type]
    "no within": (lambda: sales().key_by("id").deduplicate(), DefinitionError, r"deduplicate\(keep='first'\) has no within"),
    "within the last": (
        lambda: sales().key_by("id").deduplicate(keep="last", within="1 hour"),
        DefinitionError,
        r"deduplicate\(keep='last'\) takes no within",
    ),
    "duplicates of the last": (
        lambda: sales().key_by("id").deduplicate(keep="last", duplicates_to=tm.OutputTag("again")),
        DefinitionError,
        "takes no duplicates_to",
    ),
    "lateness of the last": (
        lambda: sales().key_by("id").deduplicate(keep="last", allowed_lateness="1 hour"),
        DefinitionError,
        "takes no allowed_lateness",
    ),
    "ttl of the first": (
        lambda: sales().key_by("id").deduplicate(within="1 hour", ttl=tm.state_ttl("1 day")),
        DefinitionError,
        r"deduplicate\(keep='first'\) takes no ttl",
    ),
    "an expression as key": (
        lambda: sales().key_by(area="upper(zone)").deduplicate(keep="last"),
        DefinitionError,
        r"'area', an expression that is no column.*with_columns\(area=...\)",
    ),
    "neither": (lambda: sales().key_by("id").deduplicate(within="1 hour", keep="any"), DefinitionError, "neither the first nor the last"),  # type: ignore[arg-type]
    "no window": (lambda: sales().latest_panes(), DefinitionError, r"not the result of a window.*\.latest\(by=\[\.\.\.\]\)"),
    "a step after the window": (lambda: hourly().filter("n > 1").latest_panes(), DefinitionError, "directly after"),
    "no row": (lambda: sales().top_n(0, order="price", rank="r"), DefinitionError, r"top_n\(0\) keeps no row"),
    "a text of rows": (
        lambda: sales().top_n("3", order="price", rank="r"),  # type: ignore[arg-type]
        DefinitionError,
        "top_n is given '3', not a whole number",
    ),
    "neither rank nor key": (lambda: sales().top_n(3, order="price"), DefinitionError, r"rank='rank'.*key=\['bid_id'\]"),
    "a rank that is there": (lambda: sales().top_n(3, order="price", rank="zone"), ColumnError, "adds a column that the stream has"),
    "a rank of the engine": (lambda: sales().top_n(3, order="price", rank="__tm_x"), InvalidNameError, "the engine's own"),
    "a key of a changelog": (lambda: changes().top_n(3, order="price", key=["id"]), DefinitionError, "over a changelog, whose key is id"),
    "an unknown group": (lambda: sales().top_n(3, by=["zones"], order="price", rank="r"), ColumnError, "unknown column 'zones'"),
    "an unknown order": (lambda: sales().top_n(3, order="pric DESC", rank="r"), ColumnError, "'pric' reads unknown column"),
    "an order that is none": (lambda: sales().top_n(3, order="price DESC LIMIT 2", rank="r"), ExpressionError, "more than an order"),
    "an order of no text": (lambda: sales().top_n(3, order=5, rank="r"), ExpressionError, "top_n order is 5, not SQL text"),  # type: ignore[arg-type]
    "an order that cannot be read": (lambda: sales().top_n(3, order="price DESC DESC", rank="r"), ExpressionError, "cannot be parsed"),
}


@pytest.mark.parametrize("what", DECLARED)
def test_a_declaration_that_is_wrong(what: str) -> None:
    written, error, message = DECLARED[what]
    with pytest.raises(error, match=rf"(?s){message}.*") as raised:
        written()
    assert "Fix: " in str(raised.value)
    assert "test_mistakes.py:" in str(raised.value)


def test_steps_that_keep_the_key_are_changelogs() -> None:
    from tidemark.graph.checks.changelogs import changelog_keys, is_net

    given = changes()
    assert changelog_keys(given.select(no="id", zone="upper(zone)").node) == ("no",)
    assert changelog_keys(given.filter("price > 1").with_columns(price="price + 1").node) == ("id",)
    assert changelog_keys(given.as_elements().node) is None
    assert not is_net(given.filter("price > 1").node)
    assert is_net(given.with_columns(more="price + 1").node)
    assert not is_net(given.with_columns(price="round(price)").node)
    assert changelog_keys(sales().latest(by=["zone", "id"]).node) == ("zone", "id")
    assert changelog_keys(sales().top_n(2, by=["zone"], order="price", rank="r").node) == ("zone", "r")
    assert changelog_keys(sales().top_n(2, order="price", key=["id"]).node) == ("id",)
    assert changelog_keys(given.top_n(2, by=["zone"], order="price").node) == ("id",)
    assert changelog_keys(hourly().latest_panes().node) == ("zone", "window_start", "window_end")
    counted = sales().key_by("zone").window(tm.count_window(3)).aggregate(n=tm.count()).uid("counted")
    assert changelog_keys(counted.latest_panes().node) == ("zone", "pane_index")
