"""The page on Postgres does what it says, and what it says of each guarantee has a test of that name."""

from __future__ import annotations

import importlib
import json
import re
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import tidemark as tm
from tests.docs.test_snippets import (
    CHECKOUT,
    elsewhere,  # noqa: F401 - a fixture
    execute,
    snippets,
)
from tests.postgres.server import NEEDS_POSTGRES, Server

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PAGE = CHECKOUT / "docs/how-to/postgres.md"
ORDERS: list[list[tuple[int, str, str, str]]] = [
    [(1, "ada", "10.00", "open"), (2, "bob", "5.50", "open"), (3, "ada", "1.00", "open")],
    [(1, "ada", "12.00", "paid"), (3, "bob", "1.00", "open"), (4, "eve", "7.25", "open")],
]


def test_each_guarantee_names_tests_that_are_there() -> None:
    named = set(re.findall(r"`(test_\w+)`", PAGE.read_text(encoding="utf-8")))
    assert named
    assert {name for name in named if not (Path(__file__).parent / f"{name}.py").exists()} == set()


@NEEDS_POSTGRES
@pytest.mark.spark
@pytest.mark.usefixtures("elsewhere", "schema")
def test_the_page_does_what_it_says(spark: SparkSession, server: Server, capsys: pytest.CaptureFixture[str]) -> None:
    execute(snippets(PAGE), {}, capsys)
    landing = Path("landing/orders").absolute()
    landing.mkdir(parents=True)
    # Spark's working folder is that of the tests.
    module = Path("shop.py")
    module.write_text(module.read_text().replace('"landing/orders"', repr(str(landing))))
    shop: Any = importlib.import_module("shop")
    server.query("CREATE SCHEMA shop")
    try:
        for number, rows in enumerate(ORDERS):
            lines = [
                {"id": order, "customer": customer, "amount": float(amount), "state": state, "at": f"2026-01-0{number + 1}T00:00:00Z"}
                for order, customer, amount, state in rows
            ]
            (landing / f"{number}.json").write_text("".join(f"{json.dumps(line)}\n" for line in lines))
            tm.run(shop.job, spark=spark)
        found = server.query("SELECT id, customer, amount FROM shop.open_orders ORDER BY id")
        assert found == [(2, "bob", Decimal("5.50")), (3, "bob", Decimal("1.00")), (4, "eve", Decimal("7.25"))]
        spent = server.query("SELECT customer, orders, total FROM shop.spent ORDER BY customer")
        assert spent == [("ada", 1, Decimal("12.00")), ("bob", 2, Decimal("6.50")), ("eve", 1, Decimal("7.25"))]
        assert server.query("SELECT count(*), max(epoch) FROM shop.orders") == [(6, 1)]
        log = server.query("SELECT customer, operation, epoch FROM shop.spent_log ORDER BY epoch, customer")
        assert log == [("ada", "insert", 0), ("bob", "insert", 0), ("ada", "update", 1), ("bob", "update", 1), ("eve", "insert", 1)]
    finally:
        server.query("DROP SCHEMA shop CASCADE")
