"""Runs the job over transfers, and shows that the total of all balances is 0 in every version of its table."""

from __future__ import annotations

import shutil
import sys
import tempfile
from pathlib import Path

from deltalake import DeltaTable

import tidemark as tm
from examples.transfers.generator import write_transfers
from examples.transfers.job import build_job


def totals(table: Path) -> list[str]:
    """Return the total of balances in each version of the table that has one."""
    newest = DeltaTable(str(table)).version()
    found = []
    for version in range(newest + 1):
        rows = DeltaTable(str(table), version=version).to_pyarrow_table(columns=["total"])["total"].to_pylist()
        found += [str(row) for row in rows]
    return found


def main() -> int:
    """Write transfers, run the job, and print what its tables say."""
    folder = Path(tempfile.mkdtemp(prefix="tidemark-transfers-"))
    try:
        count = write_transfers(folder / "landing")
        tm.run(build_job(folder / "landing", folder / "warehouse", store=folder / "store"))
        found = totals(folder / "warehouse" / "total")
        print(f"{count:,} transfers; the total of all balances in {len(found)} versions of its table: {', '.join(sorted(set(found)))}")
        balances = DeltaTable(str(folder / "warehouse" / "balances")).to_pyarrow_table(columns=["account", "debited", "balance"])
        print(balances.sort_by([("balance", "descending")]).slice(0, 5).to_pylist())
        return 0 if set(found) == {"0.00"} else 1
    finally:
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    sys.exit(main())
