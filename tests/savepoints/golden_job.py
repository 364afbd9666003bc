"""A golden savepoint of the job with every operator: what is in its folder, how it is written once, and what must come of it for ever."""

from __future__ import annotations

import json
import shutil
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import tidemark as tm
from tests.savepoints.every_operator import FILES, date, land
from tests.savepoints.operator_runs import OperatorRuns, Ran, Rows, as_texts

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tidemark.spark.state_processor import StoredState

NAME = "golden"
EPOCH = 1
"""The epoch of the savepoint; the files of later ones are kept with it."""

EXPORT, LANDING, EXPECTED = "export", "landing", "expected.json"


@dataclass(frozen=True)
class Expected:
    """What comes of a golden savepoint: its windows and kept elements by uid, as tables, and the rows of all epochs after it by output."""

    windows: Rows
    elements: Rows
    rows: Rows


def write_golden(spark: SparkSession, scratch: Path, home: Path, *, form: str) -> None:
    """Run the job to the savepoint, export it, run on to the end, and write down what came of it.

    Args:
        spark: the session.
        scratch: an empty folder to run in; its path is in the sources' logs.
        home: the folder to write, which is not there yet.
        form: name of the format.
    """
    runs = OperatorRuns(spark, scratch, tables=False)
    land(runs.landing, unique=True)
    runs.run(max_epochs=EPOCH + 1, turns=(1,))
    job, _ = runs.job("job")
    tm.savepoints_of(job).take(NAME, note="frozen", labels={"format": form})
    tm.export_savepoint(job, NAME, str(home / EXPORT))
    stored = tm.savepoint(job, NAME)
    windows, elements = windows_of(stored, spark), elements_of(stored, spark)
    expected = Expected(windows, elements, rows_of(runs.run(first=EPOCH + 1, turns=(1,))))
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


def windows_of(stored: StoredState, spark: SparkSession) -> Rows:
    """Return the windows of all operators as the state processor reads them, without partial results."""
    found = {}
    for uid in stored.operators:
        rows = stored.read_window(uid, spark)
        found[uid] = as_texts(rows.select(*(name for name in rows.columns if "__" not in name)).toArrow().to_pylist())
    return found


def elements_of(stored: StoredState, spark: SparkSession) -> Rows:
    """Return the elements of all operators that keep them."""
    keeping = [uid for uid, operator in stored.operators.items() if operator.keeps == "elements"]
    return {uid: as_texts(stored.read_elements(uid, spark).toArrow().to_pylist()) for uid in keeping}


def rows_of(ran: Ran) -> Rows:
    """Return all rows of a run by output."""
    return {output: sorted(row for rows in ran.epochs for row in rows[output]) for output in ran.epochs[0]}
