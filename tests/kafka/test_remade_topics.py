"""Jobs that go back in time over a topic that was made again: epochs that run again after a crash, restores, rewinds."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest
from deltalake import DeltaTable

import tidemark as tm
from tests.kafka.broker import NEEDS_JARS, Broker, Topics
from tests.kafka.readers import TIMED, fill, make_again
from tests.seeds import only_long
from tidemark.errors import SourceError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [NEEDS_JARS, pytest.mark.spark, pytest.mark.slow]

OLD: Final = ("old", 0), ("old", 1), ("old", 2)


@dataclass
class Copy:
    """A job that copies a topic to a table, and counts its records by what they say."""

    topic: str
    address: str
    folder: Path
    spark: SparkSession

    def job(self, **arguments: Any) -> tm.Job:
        records = tm.source("records", tm.kafka_source(servers=self.address, topics=self.topic, **arguments), watermarks=TIMED)
        rows = records.select("offset", text="CAST(value AS STRING)")
        counts = rows.key_by("text").running_aggregate(n=tm.count()).uid("counts").select("text", "n")
        outputs = {"rows": tm.delta(rows, f"{self.folder}/rows"), "counts": tm.delta(counts, f"{self.folder}/counts")}
        return tm.Job("copy", outputs=outputs, store=f"{self.folder}/store")

    def run(self, *, restore: str | None = None, **arguments: Any) -> None:
        tm.run(self.job(**arguments), spark=self.spark, handle_signals=False, restore=tm.Restore(restore) if restore else None)

    def restart(self, *, restore: str | None = None) -> None:
        """Run with the wish to read topics that were made again from their beginnings."""
        self.run(restore=restore, on_remade="restart")

    def refuse(self, *, restore: str | None = None) -> None:
        """Run, and see that the topic is taken for another one, before anything is committed."""
        before = self.rows
        with pytest.raises(SourceError, match=f"topic '{self.topic}' of source 'records' was deleted and made again") as raised:
            self.run(restore=restore)
        assert (raised.value.transient, raised.value.job, raised.value.uid) == (False, "copy", "records")
        assert self.rows == before

    def save(self, name: str) -> None:
        tm.savepoints_of(self.job()).take(name)

    @property
    def rows(self) -> list[tuple[str, int]]:
        """The records in the table, as often as they are there."""
        found = DeltaTable(f"{self.folder}/rows").to_pyarrow_table().to_pylist()
        return sorted((row["text"], row["offset"]) for row in found)

    @property
    def counts(self) -> dict[str, int]:
        """The greatest count of each text: what the state has."""
        found: Counter[str] = Counter()
        for row in DeltaTable(f"{self.folder}/counts").to_pyarrow_table().to_pylist():
            found[row["text"]] = max(found[row["text"]], row["n"])
        return dict(found)


@pytest.fixture
def copy(topics: Topics, broker: Broker, spark: SparkSession, tmp_path: Path) -> Callable[[str], Copy]:
    """Return a job that has read three records, with a savepoint of then, and one more since."""

    def made(topic: str) -> Copy:
        topics.create(topic, 1)
        fill(topics, topic, "old", 3)
        found = Copy(topic, broker.address, tmp_path, spark)
        found.run()
        assert found.rows == [*OLD]
        found.save("early")
        fill(topics, topic, "later", 1)
        return found

    return made


def test_an_epoch_that_runs_again_does_not_read_another_topic(
    topics: Topics, copy: Callable[[str], Copy], monkeypatch: pytest.MonkeyPatch
) -> None:
    job = copy("replayed")

    def crash(point: str) -> None:
        if point == "before-commit":
            raise RuntimeError("a crash before the commit")

    with monkeypatch.context() as patch:
        patch.setattr("tidemark.spark.loop.driver.crash_point", crash)
        with pytest.raises(tm.TidemarkError, match="a crash before the commit"):
            job.run()
    # With the same offsets: by these the epoch that was planned would be the same.
    make_again(topics, "replayed", 4)
    job.refuse()
    job.restart()
    assert job.rows == sorted([*OLD, *(("new", offset) for offset in range(4))])
    assert job.counts == {"old": 3, "new": 4}


@only_long
def test_a_restore_to_before_a_topic_was_made_again(topics: Topics, copy: Callable[[str], Copy]) -> None:
    job = copy("restored")
    job.run()
    make_again(topics, "restored", 5)
    job.refuse(restore="early")
    job.restart(restore="early")
    # State is that of the savepoint, and tables keep their rows, as after every restore without a rewind.
    assert job.counts == {"old": 3, "later": 1, "new": 5}
    assert job.rows == sorted([*OLD, ("later", 3), *(("new", offset) for offset in range(5))])
    fill(topics, "restored", "newer", 1)
    job.run()
    assert job.counts == {"old": 3, "later": 1, "new": 5, "newer": 1}


def test_a_rewind_to_before_a_topic_was_made_again_and_back(topics: Topics, copy: Callable[[str], Copy]) -> None:
    job = copy("rewound")
    job.run()
    make_again(topics, "rewound", 2)
    job.restart()
    job.save("renewed")
    fill(topics, "rewound", "newer", 1)
    job.run()
    assert job.counts == {"old": 3, "later": 1, "new": 2, "newer": 1}
    tm.rewind(job.job(), "renewed")
    assert job.rows == sorted([*OLD, ("later", 3), ("new", 0), ("new", 1)])
    # The savepoint is of the topic that there is: nothing is read twice, and no wish is needed.
    job.run()
    assert job.rows == sorted([*OLD, ("later", 3), ("new", 0), ("new", 1), ("newer", 2)])
    tm.rewind(job.job(), "early")
    assert job.rows == [*OLD]
    job.refuse()
    job.restart()
    # What the former topic had after the savepoint is nowhere any more.
    assert job.rows == sorted([*OLD, ("new", 0), ("new", 1), ("newer", 2)])
    assert job.counts == {"old": 3, "new": 2, "newer": 1}
