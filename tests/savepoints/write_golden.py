"""Writes a golden savepoint of the current format: ``python -m tests.savepoints.write_golden 2``, in the project's folder.

It makes ``golden/2/job``, and does nothing where there is one: a golden savepoint is written once and read for ever. A new one comes
beside the old ones whenever what is stored changes: the form of a record, of an export, or of an operator's state.
"""

from __future__ import annotations

import shutil
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from tests.few_rows import FEW_ROWS
from tests.savepoints.golden_job import write_golden
from tidemark.spark.env.session import build_session

GOLDEN = Path(__file__).parent / "golden"


def main(arguments: Sequence[str]) -> int:
    """Write the golden savepoint of a format."""
    (form,) = arguments
    home = GOLDEN / form / "job"
    if home.exists():
        print(f"{home} is there, and golden for ever; give a new format's name")
        return 1
    # Its path is written into the sources' logs, so it is one that says nothing of the machine.
    scratch = Path(tempfile.gettempdir()) / "tidemark-golden"
    scratch.mkdir()
    spark = build_session("local[1]", app_name="golden", conf={**FEW_ROWS})
    try:
        write_golden(spark, scratch, home, form=form)
    finally:
        spark.stop()
        shutil.rmtree(scratch)
    written = [path for path in home.rglob("*") if path.is_file()]
    print(f"{home}: {len(written)} files, {sum(path.stat().st_size for path in written):,} bytes")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
