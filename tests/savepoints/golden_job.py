"""A golden savepoint of the job with every operator: what is in its folder, how it is written once, and what must come of it for ever."""

from __future__ import annotations

import json
import shutil
from collections.abc import Collection, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import tidemark as tm
from tests.savepoints.every_operator import FILES, date, land
from tests.savepoints.operator_runs import OperatorRuns, Rows, as_texts

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tidemark.spark.state_api.state_processor import StoredState

NAME = "golden"
EPOCH = 1
"""The epoch of the savepoint; the files of later ones are kept with it."""

EXPORT, LANDING, EXPECTED = "export", "landing", "expected.json"


@dataclass(frozen=True)
class Expected:
    """What a golden savepoint holds and what comes of it: rows as texts.

    ``windows`` and kept ``elements`` are by uid, of operators without windows by uid and table, as the state processor shows them; ``rows``
    of all later epochs by output, for outputs in memory; ``tables`` by output in the end, and ``before`` as they were at the savepoint.
    """

    windows: Rows
    elements: Rows
    rows: Rows
    before: Rows
    tables: Rows


def write_golden(spark: SparkSession, scratch: Path, home: Path, *, form: str) -> None:
    """Run the job undisturbed over the whole input, export an epoch in the midst of it, and write down what came after that.

    Args:
        spark: the session.
        scratch: an empty folder to run in; its path is in the sources' logs.
        home: the folder to write, which is not there yet.
        form: name of the format.
    """
    runs = OperatorRuns(spark, scratch)
    land(runs.landing, unique=True)
    ran = runs.run(turns=(1,))
    job, _ = runs.job("job")
    taken = tm.savepoints_of(job).take(NAME, epoch=EPOCH, note="frozen", labels={"format": form})
    versions = {name: table.version for name, table in taken.info.tables.items()}
    tm.export_savepoint(job, NAME, str(home / EXPORT))
    stored = tm.savepoint(job, NAME)
    expected = Expected(
        windows_of(stored, spark),
        elements_of(stored, spark),
        rows_of(ran.epochs[EPOCH + 1 :]),
        before=runs.rows_of_tables("job", versions),
        tables=runs.rows_of_tables("job"),
    )
    (home / EXPECTED).write_text(json.dumps(asdict(expected), indent=1, sort_keys=True) + "\n")
    for number in range(EPOCH + 1, FILES):
        for path in runs.landing.glob(f"*/{number}.json"):
            (home / LANDING / path.parent.name).mkdir(parents=True, exist_ok=True)
            shutil.copyfile(path, home / LANDING / path.parent.name / path.name)


def read_expected(home: Path) -> Expected:
    """Return what has to come of a golden savepoint."""
    return Expected(**json.loads((home / EXPECTED).read_text()))


def land_rest(home: Path, landing: Path) -> None:
    """Put the files that come after a golden savepoint where a job reads them."""
    shutil.copytree(home / LANDING, landing)
    for path in landing.glob("*/*.json"):
        date(path, int(path.stem))


def windows_of(stored: StoredState, spark: SparkSession, *, but: Collection[str] = ()) -> Rows:
    """Return the windows of operators as the state processor reads them, without partial results; of others all tables, by uid.

    Those of the operators ``but`` are left out.
    """
    found = {}
    for uid, operator in stored.operators.items():
        if uid in but:
            continue
        tables = {uid: stored.read_window(uid, spark)} if operator.kind == "window" else stored.tables(uid, spark)
        for table, rows in tables.items():
            name = uid if table == uid else f"{uid}.{table}"
            found[name] = as_texts(rows.select(*(name for name in rows.columns if "__" not in name)).toArrow().to_pylist())
    return found


def elements_of(stored: StoredState, spark: SparkSession, *, but: Collection[str] = ()) -> Rows:
    """Return the elements of the operators that keep them, except the operators ``but``."""
    keeping = [uid for uid, operator in stored.operators.items() if operator.keeps == "elements" and uid not in but]
    return {uid: as_texts(stored.read_elements(uid, spark).toArrow().to_pylist()) for uid in keeping}


def rows_of(epochs: Sequence[Rows]) -> Rows:
    """Return all rows of some epochs by output."""
    return {output: sorted(row for rows in epochs for row in rows[output]) for output in epochs[0]}
