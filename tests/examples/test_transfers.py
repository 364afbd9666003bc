"""The total of all balances is 0 in every version of its table, whatever happens to the job on the way."""

from __future__ import annotations

import json
from collections import Counter
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from deltalake import DeltaTable

import tidemark as tm
from examples.transfers.generator import write_transfers
from examples.transfers.job import build_job

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

FILES = 5
# Where drivers die, the first in its first epoch and others in their second, and the parallelism of the next.
# The last publishes the three outputs of the epoch that it finds, three of its own, and two of that in which it dies.
DEATHS = {"outputs-staged": 1, "before-commit:2": 7, "after-commit:2": 2, "output-published:8": 3}


def versions(table: Path) -> list[list[dict[str, object]]]:
    """Return the rows of each version of a table that has some."""
    found = [DeltaTable(str(table), version=version) for version in range(DeltaTable(str(table)).version() + 1)]
    return [rows for each in found if (rows := each.to_pyarrow_table().to_pylist())]


def counted(landing: Path) -> dict[int, Decimal]:
    """Return the balances by plain addition."""
    found: Counter[int] = Counter()
    for path in landing.iterdir():
        for line in path.read_text(encoding="utf-8").splitlines():
            row = json.loads(line)
            cents = int(Decimal(row["amount"]) * 100)
            found[row["to_account"]] += cents
            found[row["from_account"]] -= cents
    return {account: Decimal(cents) / 100 for account, cents in found.items()}


def killed(pid: int, signal: int) -> None:
    """Stand for the death of the process: nothing of it goes on."""
    del pid, signal
    raise RuntimeError("killed here")


def test_the_total_is_0_in_every_version(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    landing, warehouse = tmp_path / "landing", tmp_path / "warehouse"
    write_transfers(landing, files=FILES, rows=60, accounts=12)

    def drive(parallelism: int | None = None, *, max_epochs: int | None = None) -> None:
        job = build_job(landing, warehouse, store=tmp_path / "store", parallelism=parallelism)
        tm.run(job, spark=spark, max_epochs=max_epochs, takeover=True, handle_signals=False)

    parallelism = None
    for point, next_parallelism in DEATHS.items():
        with monkeypatch.context() as patch:
            patch.setenv("TIDEMARK_CRASH_AT", point)
            patch.setattr("tidemark.crashpoints._reached", {})
            patch.setattr("tidemark.crashpoints.os.kill", killed)
            with pytest.raises(Exception, match="killed here"):
                drive(parallelism, max_epochs=2)
        parallelism = next_parallelism
    drive(parallelism)
    totals = versions(warehouse / "total")
    assert len(totals) == FILES
    assert [row["total"] for rows in totals for row in rows] == [Decimal("0.00")] * FILES
    moved = [Decimal(str(row["moved"])) for rows in totals for row in rows]
    assert moved == sorted(set(moved)), "each version is of more transfers"
    balances = versions(warehouse / "balances")
    assert len(balances) == FILES
    assert [sum(Decimal(str(row["balance"])) for row in rows) for rows in balances] == [Decimal("0.00")] * FILES
    accounts = {row["account"] if row["account"] is not None else row["debited"]: row["balance"] for row in balances[-1]}
    assert accounts == counted(landing)
