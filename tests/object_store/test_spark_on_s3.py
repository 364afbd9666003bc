"""Spark on S3, against moto's on loopback: source, state, Delta and Parquet outputs, savepoint, another parallelism, rewind."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.object_store.s3_server import SECRET, S3Server, server
from tidemark.spark.env.connector_jars import CONNECTORS, S3

CHECKOUT = Path(__file__).resolve().parents[2]
JARS = CHECKOUT / ".jars"
BUCKET = "lake-of-spark"

pytestmark = [
    pytest.mark.spark,
    pytest.mark.slow,
    pytest.mark.skipif(
        not all((JARS / S3 / jar.file).is_file() for jar in CONNECTORS[S3]), reason="there is no connector for S3: run `make jars`"
    ),
]


@pytest.fixture(scope="module")
def s3_server() -> S3Server:
    return server()


@dataclass(frozen=True)
class Ran:
    """What the job's process saw and printed, and what was copied in the store."""

    found: dict[str, Any]
    said: str
    copies: Counter[str]


@pytest.fixture(scope="module")
def ran(_environment: None, s3_server: S3Server, tmp_path_factory: pytest.TempPathFactory) -> Ran:
    """Run the job in a process of its own: the session of the other tests has no connector, which they show."""
    assert s3_server.put(f"/{BUCKET}") == 200
    home = tmp_path_factory.mktemp("home")
    variables = {
        **os.environ,
        **s3_server.variables,
        "TIDEMARK_CONNECTORS": str(JARS),
        "XDG_STATE_HOME": str(home),
        "PYTHONPATH": str(CHECKOUT),
    }
    done = subprocess.run(
        [sys.executable, "-m", "tests.object_store.s3_job", BUCKET],
        env=variables,
        cwd=CHECKOUT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    logs = "".join(path.read_text(errors="replace") for path in home.rglob("*.log"))
    return Ran(json.loads(done.stdout), f"{done.stdout}{done.stderr}{logs}", +s3_server.copies)


BEFORE = {
    "totals": [["a", 4], ["b", 2]],
    "newest": [["a", 3], ["b", 2], ["c", 4]],
    "rows": [["a", 1], ["a", 3], ["b", 2], ["c", 4]],
}


def test_state_and_outputs(ran: Ran) -> None:
    assert ran.found["before"] == BEFORE


def test_another_parallelism(ran: Ran) -> None:
    assert ran.found["other parallelism"] == {
        "totals": BEFORE["totals"],
        "newest": [["a", 6], ["b", 5], ["c", 4]],
        "rows": [["a", 1], ["a", 3], ["a", 6], ["b", 2], ["b", 5], ["c", 4]],
    }


def test_a_rewind_and_what_follows(ran: Ran) -> None:
    # A folder of files keeps what it has, as on disk, so that rows of epochs that run again are there again.
    stays = ran.found["other parallelism"]["rows"]
    assert ran.found["rewound tables"] == {**BEFORE, "rows": stays}
    assert ran.found["after"] == {
        "totals": [["a", 4], ["a", 6], ["b", 2], ["b", 5], ["b", 8], ["c", 4], ["c", 7]],
        "newest": [["a", 6], ["b", 8], ["c", 7]],
        "rows": sorted([*stays, ["a", 6], ["b", 5], ["b", 8], ["c", 7]], key=repr),
    }


def test_no_file_is_copied_by_spark_and_each_of_a_parquet_folder_once(ran: Ran) -> None:
    published = {path: times for path, times in ran.copies.items() if path.startswith(f"/{BUCKET}/rows/part-")}
    assert len(published) >= 4
    assert set(published.values()) == {1}
    assert {path for path in ran.copies if path.endswith(".parquet")} == published.keys()


def test_the_session_has_what_the_store_has_and_no_secret(ran: Ran, s3_server: S3Server) -> None:
    settings = ran.found["settings"]
    assert settings["spark.hadoop.fs.s3a.endpoint"] == s3_server.variables["AWS_ENDPOINT_URL"]
    assert settings["spark.hadoop.fs.s3a.path.style.access"] == "true"
    assert "hadoop-aws" in settings["spark.driver.extraClassPath"]
    assert SECRET not in ran.said
