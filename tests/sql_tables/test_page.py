"""The page on MariaDB, MySQL and SQLite does what it says, and what it says of each guarantee has a test of that name."""

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
from tests.postgres.test_page import ORDERS
from tests.sql_tables.place import MariadbPlace
from tests.sql_tables.server import NEEDS_MARIADB
from tidemark.graph.connectors.sql_table.types import sql_type

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PAGE = CHECKOUT / "docs/how-to/sql-tables.md"


def test_each_guarantee_names_tests_that_are_there() -> None:
    named = set(re.findall(r"`(test_\w+)`", PAGE.read_text(encoding="utf-8")))
    assert named
    assert {name for name in named if not (Path(__file__).parent / f"{name}.py").exists()} == set()


def test_the_table_of_types_is_that_of_the_code() -> None:
    row = re.compile(r"^\| `([A-Z0-9_`, ]+)` \| ([^|]+) \| ([^|]+) \|$", re.MULTILINE)
    rows = row.findall(PAGE.read_text(encoding="utf-8"))
    assert len(rows) == 6
    for kinds, mariadb, sqlite in rows:
        spelled = [re.findall(r"`([\w()]+)`", text.partition(";")[0]) for text in (mariadb, sqlite)]
        for number, kind in enumerate(kinds.replace("`", "").split(", ")):
            for found, database in zip(spelled, ("mariadb", "sqlite"), strict=True):
                wanted = sql_type(database, kind)  # type: ignore[arg-type]  # one of the two
                assert wanted == found[number if len(found) == len(kinds.split(", ")) else 0], kind


@NEEDS_MARIADB
@pytest.mark.spark
@pytest.mark.usefixtures("elsewhere")
def test_the_page_does_what_it_says(spark: SparkSession, mariadb: MariadbPlace, capsys: pytest.CaptureFixture[str]) -> None:
    execute(snippets(PAGE), {}, capsys)
    landing = Path("landing/orders").absolute()
    landing.mkdir(parents=True)
    # Spark's working folder is that of the tests; the module of the page on Postgres has the same name.
    text = Path("shop.py").read_text().replace('"landing/orders"', repr(str(landing)))
    Path("shop_in_mariadb.py").write_text(text)
    shop: Any = importlib.import_module("shop_in_mariadb")
    for number, rows in enumerate(ORDERS):
        lines = [
            {"id": order, "customer": customer, "amount": float(amount), "state": state, "at": f"2026-01-0{number + 1}T00:00:00Z"}
            for order, customer, amount, state in rows
        ]
        (landing / f"{number}.json").write_text("".join(f"{json.dumps(line)}\n" for line in lines))
        tm.run(shop.job, spark=spark)
    found = mariadb.query("SELECT id, customer, amount FROM open_orders ORDER BY id")
    assert found == [(2, "bob", Decimal("5.50")), (3, "bob", Decimal("1.00")), (4, "eve", Decimal("7.25"))]
    spent = mariadb.query("SELECT customer, orders, total FROM spent ORDER BY customer")
    assert spent == [("ada", 1, Decimal("12.00")), ("bob", 2, Decimal("6.50")), ("eve", 1, Decimal("7.25"))]
    assert mariadb.query("SELECT count(*), max(epoch) FROM orders") == [(6, 1)]
    log = mariadb.query("SELECT customer, operation, epoch FROM spent_log ORDER BY epoch, customer")
    assert log == [("ada", "insert", 0), ("bob", "insert", 0), ("ada", "update", 1), ("bob", "update", 1), ("eve", "insert", 1)]
