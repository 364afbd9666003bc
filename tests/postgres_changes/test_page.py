"""The page on changes of Postgres does what it says."""

from __future__ import annotations

import importlib
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pytest
from deltalake import DeltaTable

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

PAGE = CHECKOUT / "docs/how-to/postgres-changes.md"


@NEEDS_POSTGRES
@pytest.mark.spark
@pytest.mark.usefixtures("elsewhere", "schema")
def test_the_page_does_what_it_says(spark: SparkSession, server: Server, capsys: pytest.CaptureFixture[str]) -> None:
    execute(snippets(PAGE), {}, capsys)
    shop: Any = importlib.import_module("shop_totals")
    server.query("CREATE TABLE public.orders (id bigint PRIMARY KEY, customer bigint, total numeric(10, 2))")
    server.query("CREATE TABLE public.customers (id bigint PRIMARY KEY, city text)")
    try:
        server.query("INSERT INTO public.orders VALUES (1, 1, 10), (2, 1, 5.5), (3, 2, 1)")
        tm.run(shop.job, spark=spark)
        server.query("UPDATE public.orders SET customer = 2 WHERE id = 2")
        server.query("DELETE FROM public.orders WHERE id = 3")
        tm.run(shop.job, spark=spark)
        found = DeltaTable("lake/totals").to_pyarrow_table().to_pylist()
        assert sorted((row["customer"], row["orders"], row["total"]) for row in found) == [
            (1, 1, Decimal("10.00")),
            (2, 1, Decimal("5.50")),
        ]
        slots = server.query("SELECT slot_name FROM pg_replication_slots")
        assert [name for (name,) in slots if name.startswith("tidemark_shop_totals_shop_")]
    finally:
        for (name,) in server.query("SELECT slot_name FROM pg_replication_slots WHERE slot_name LIKE 'tidemark_shop_totals_%%'"):
            server.query("SELECT pg_drop_replication_slot(%s)", name)
        for (name,) in server.query("SELECT pubname FROM pg_publication WHERE pubname LIKE 'tidemark_shop_totals_%%'"):
            server.query(f"DROP PUBLICATION {name}")
        server.query("DROP TABLE public.orders, public.customers")
