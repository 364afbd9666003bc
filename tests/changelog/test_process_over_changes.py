"""A process function over a changelog takes its changes as elements, each with its operation, and so can take back what it had added."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import tidemark as tm

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

Row = Mapping[str, Any]
# Accounts, each at a bank: an update moves one to another bank, one is closed, and one changes twice within an epoch.
GIVEN: list[list[tuple[int, int, str, int, bool]]] = [
    [(10, 1, "north", 5, False), (11, 2, "north", 7, False), (12, 3, "south", 1, False)],
    [(20, 1, "south", 6, False), (21, 3, "south", 2, False), (22, 3, "south", 4, False)],
    # It stays as it was.
    [(30, 1, "north", 9, False), (31, 1, "south", 6, False)],
    [(40, 2, "north", 0, True)],
]
AMOUNTS = [{"north": 12, "south": 1}, {"north": 7, "south": 10}, {"north": 7, "south": 10}, {"north": 0, "south": 10}]
SIGNS = {"insert": 1, "update_after": 1, "update_before": -1, "delete": -1}


class Balance:
    """Keeps a bank's total of the accounts that it has now."""

    total = tm.value_state("BIGINT", default=0)

    def process(self, element: Row, ctx: tm.ProcessContext) -> Iterator[Row]:
        del ctx
        self.total.update(self.total.value() + SIGNS[element["operation"]] * element["amount"])
        yield {"bank": element["bank"], "operation": element["operation"], "amount": element["amount"], "total": self.total.value()}


def test_it_takes_back_the_rows_before_and_adds_those_after(spark: SparkSession, tmp_path: Path) -> None:
    schema = "t BIGINT, id INT, bank STRING, amount BIGINT, closed BOOLEAN"
    rows = tm.source("rows", tm.from_elements(epochs=GIVEN, schema=schema), watermarks=tm.ascending(timestamp="t"))
    accounts = rows.latest(by=["id"], deleted="closed").uid("accounts").select("id", "bank", "amount")
    balances = accounts.as_elements().key_by("bank").process(Balance, returns="bank STRING, operation STRING, amount BIGINT, total BIGINT")
    job = tm.Job("balances", {"balances": tm.memory(balances.uid("balances"), f"{tmp_path}/out")}, store=str(tmp_path / "store"))
    found: list[list[Row]] = []
    seen = 0
    for _ in GIVEN:
        tm.run(job, spark=spark, max_epochs=1)
        table = tm.memory_table(f"{tmp_path}/out")
        made = [] if table is None else table.to_pylist()
        found.append(made[seen:])
        seen = len(made)
    changes = [sorted((row["bank"], row["operation"], row["amount"]) for row in epoch) for epoch in found]
    assert changes == [
        [("north", "insert", 5), ("north", "insert", 7), ("south", "insert", 1)],
        [
            ("north", "update_before", 5),
            ("south", "update_after", 4),
            ("south", "update_after", 6),
            ("south", "update_before", 1),
        ],
        # One net change of a key in an epoch, and none where it is none.
        [],
        [("north", "delete", 7)],
    ]
    totals: dict[str, int] = {}
    for epoch, expected in zip(found, AMOUNTS, strict=True):
        # Of a bank's changes in an epoch the last has its total; a sum does not depend on their order.
        totals |= {row["bank"]: row["total"] for row in epoch}
        assert totals == expected
