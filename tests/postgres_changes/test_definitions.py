"""What is declared of a source that captures changes is checked at its definition."""

from __future__ import annotations

from collections.abc import Callable

import pytest

import tidemark as tm
from tidemark.errors import ColumnError, DefinitionError, InvalidNameError, TidemarkError
from tidemark.graph import schema_of

ORDERS = {"orders": tm.postgres_table("id BIGINT, total DECIMAL(10, 2), at TIMESTAMP", key=["id"])}


def changes(**options: object) -> tm.PostgresChanges:
    given = {"dsn_env": "SHOP_DSN", "tables": ORDERS, **options}
    return tm.postgres_changes("shop", **given)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("define", "error", "message"),
    [
        (lambda: changes(dsn_env="postgresql://a:secret@b/c"), DefinitionError, "names no environment variable"),
        (lambda: changes(tables={}), DefinitionError, "names no tables"),
        (lambda: changes(tables=["orders"]), DefinitionError, "names no tables"),
        (lambda: changes(tables={"a b": ORDERS["orders"]}), DefinitionError, "names no table"),
        (lambda: changes(tables={"orders": ORDERS["orders"], "public.orders": ORDERS["orders"]}), DefinitionError, "which are one name"),
        (lambda: changes(slot="Shop"), DefinitionError, "slot='Shop'.* is no name"),
        (lambda: changes(publication="a-b"), DefinitionError, "publication='a-b'.* is no name"),
        (lambda: changes(max_rows_per_epoch=0), DefinitionError, "max_rows_per_epoch=0"),
        (lambda: changes(on_truncate="drop"), DefinitionError, "neither 'fail' nor 'skip'"),
        (lambda: changes(watermarks=tm.ingestion_time()), DefinitionError, "has no timestamp"),
        (lambda: changes(watermarks=tm.ascending(timestamp="updated_at")), ColumnError, "updated_at"),
        (lambda: changes().table("customers"), DefinitionError, "does not capture 'customers', but public.orders"),
        (lambda: changes().table("orders", metadata={"id": "lsn"}), InvalidNameError, "one name"),
        (lambda: changes().table("orders", metadata={"x": "unknown"}), ColumnError, "unknown"),
        (lambda: tm.postgres_table("id BIGINT", key=["no"]), ColumnError, "names 'no'"),
        (lambda: tm.postgres_table("id BIGINT, tags ARRAY<INT>", key=["id"]), DefinitionError, "tags.*read it as a text: tags STRING"),
        (lambda: tm.postgres_table("id BIGINT, `a%` INT", key=["id"]), DefinitionError, "names with '%'"),
    ],
)
def test_what_is_refused(define: Callable[[], object], error: type[TidemarkError], message: str) -> None:
    with pytest.raises(error, match=message) as raised:
        define()
    assert "secret" not in str(raised.value)


def test_the_columns_of_a_table() -> None:
    orders = changes(watermarks=tm.ascending(timestamp="coalesce(at, committed_at)")).table("public.orders", metadata={"tx": "tx"})
    schema = schema_of(orders.node)
    assert schema is not None
    assert str(schema) == "id BIGINT, total DECIMAL(10, 2), at TIMESTAMP, tx BIGINT"
    text = tm.Job("shop", {"orders": tm.memory(orders, "orders")}, store="unused").explain()
    assert "changes of public.orders by SHOP_DSN" in text
    assert "event time coalesce(at, committed_at)" in text
