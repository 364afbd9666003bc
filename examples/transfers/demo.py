"""Runs the job over transfers, and shows that the total of all balances is 0 in every version of its table."""

from __future__ import annotations

import shutil
import sys
import tempfile
from pathlib import Path

import pyarrow as pa
from deltalake import DeltaTable
from pyarrow import fs

import tidemark as tm
from examples.transfers.generator import write_transfers
from examples.transfers.job import build_job


def totals(table: Path) -> list[str]:
    """Return the total of balances in each version of the table that has one."""
    newest = DeltaTable(str(table)).version()
    found = []
    for version in range(newest + 1):
        found += [str(total) for total in read_table(table, ["total"], version)["total"].to_pylist()]
    return found


def read_table(path: Path, columns: list[str], version: int | None = None) -> pa.Table:
    """Return columns of a Delta table, of its newest version by default."""
    # Through a file system in Python, Arrow's threads may still close files when Python ends, which aborts the process.
    files = fs.SubTreeFileSystem(str(path), fs.LocalFileSystem())
    return DeltaTable(str(path), version=version).to_pyarrow_table(columns=columns, filesystem=files)


def main() -> int:
    """Write transfers, run the job, and print what its tables say."""
    folder = Path(tempfile.mkdtemp(prefix="tidemark-transfers-"))
    try:
        count = write_transfers(folder / "landing")
        tm.run(build_job(folder / "landing", folder / "warehouse", store=folder / "store"))
        found = totals(folder / "warehouse" / "total")
        print(f"{count:,} transfers; the total of all balances in {len(found)} versions of its table: {', '.join(sorted(set(found)))}")
        balances = read_table(folder / "warehouse" / "balances", ["account", "debited", "balance"])
        print(balances.sort_by([("balance", "descending")]).slice(0, 5).to_pylist())
        return 0 if set(found) == {"0.00"} else 1
    finally:
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    sys.exit(main())
