"""Mistakes in temporal joins, each with its fix."""

from __future__ import annotations

from collections.abc import Callable

import pytest

import tidemark as tm

ORDERS = tm.source(
    "orders",
    tm.from_elements(epochs=[], schema="at TIMESTAMP, id INT, currency STRING, tags MAP<STRING, STRING>"),
    watermarks=tm.ascending(timestamp="at"),
)
RATES = tm.source(
    "rates",
    tm.from_elements(epochs=[], schema="at TIMESTAMP, currency STRING, code INT, rate DOUBLE"),
    watermarks=tm.ascending(timestamp="at"),
)
GIVEN = RATES.select("currency", "code", "rate")

MISTAKES: dict[str, tuple[Callable[[], object], str]] = {
    "one name twice": (lambda: ORDERS.join_asof(RATES, on="currency"), r"both sides have a column 'at'.*Fix: .*right_at='at'"),
    "unknown left": (lambda: ORDERS.join_asof(GIVEN, on={"curency": "currency"}), r"did you mean 'currency'"),
    "unknown right": (lambda: ORDERS.join_asof(GIVEN, on={"currency": "rat"}), r"did you mean 'rate'"),
    "types": (lambda: ORDERS.join_asof(GIVEN, on={"currency": "code"}), r"of type STRING with 'code' of type INT.*CAST\(code AS STRING\)"),
    "nothing": (lambda: ORDERS.join_asof(GIVEN, on=[]), r"join_asof\(on=...\) is given \[\], not a list of columns"),
    "no columns": (lambda: ORDERS.join_asof(GIVEN, on=7), r"is given 7, not a list of columns"),  # type: ignore[arg-type]
    "maps": (lambda: ORDERS.join_asof(GIVEN, on={"tags": "currency"}), r"maps are no keys"),
    "how": (lambda: ORDERS.join_asof(GIVEN, on="currency", how="full"), r"how='full'.*how='inner' or how='left'"),  # type: ignore[arg-type]
    "no key": (lambda: ORDERS.join_asof(GIVEN, on="currency", allowed_lateness="1 hour"), r"key=\['order_id'\]"),
    "key without use": (lambda: ORDERS.join_asof(GIVEN, on="currency", key="id"), r"nothing is corrected"),
    "unknown key": (lambda: ORDERS.join_asof(GIVEN, on="currency", allowed_lateness="1 hour", key=["ids"]), r"did you mean 'id'"),
    "a map as key": (lambda: ORDERS.join_asof(GIVEN, on="currency", allowed_lateness="1 hour", key=["tags"]), r"cannot be compared"),
    "no stream": (lambda: ORDERS.join_asof("rates", on="currency"), r"not a stream"),  # type: ignore[arg-type]
    "a tag": (lambda: ORDERS.join_asof(GIVEN, on="currency", late_left_to="late"), r"late_left_to is 'late', not an output tag"),  # type: ignore[arg-type]
    "a changelog": (lambda: ORDERS.join_asof(GIVEN.as_changelog(["currency"]), on="currency"), r"join_asof is given a changelog"),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_a_mistake_says_what_to_write(name: str) -> None:
    call, message = MISTAKES[name]
    with pytest.raises(tm.TidemarkError, match=r"(?s)" + message) as raised:
        call()
    assert "Fix: " in str(raised.value)
    assert "test_asof_mistakes.py" in str(raised.value)


def test_corrected_results_are_a_changelog() -> None:
    corrected = ORDERS.join_asof(GIVEN, on="currency", allowed_lateness="1 hour", key="id").uid("asof")
    with pytest.raises(tm.TidemarkError, match="leaves out 'id', part of the key of a changelog"):
        corrected.select("rate")
    assert "corrected for 1 hour, key id" in repr(corrected) or "as-of join" in repr(corrected)
