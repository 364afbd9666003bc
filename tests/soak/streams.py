"""What the soak's jobs read and write: files that land every second, three jobs over them, and the tables that follow."""

from __future__ import annotations

import json
import random
import textwrap
from collections import Counter
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Final

from deltalake import DeltaTable

from tests.few_rows import FEW_ROWS
from tests.repeated import repeated
from tidemark.clock import SYSTEM_CLOCK
from tidemark.control.model.spec import JobSpec, RestartPolicy

JOBS: Final = ("tens", "slides", "bursts")
BOUND_MS: Final = 2_000
TRIGGER_MS: Final = 10_000
CALM: Final = RestartPolicy(initial_ms=500, longest_ms=1_000, same_epoch_failures=0)
"""Drivers die at random here, so that three deaths in one epoch say nothing of the epoch."""

_EVERY_SECONDS: Final = 1.0
_ROWS: Final = 200
_KEYS: Final = 20

CODE: Final = '''
"""Three jobs over one folder of events."""
import os
import tidemark as tm

ROOT, OUT = os.environ["SOAK_ROOT"], os.environ["SOAK_OUT"]


def job(name, window):
    files = tm.files(ROOT + "/in", format="json", schema="k STRING, t BIGINT, v BIGINT")
    events = tm.source("events", files, watermarks=tm.bounded_out_of_orderness("2 seconds", timestamp="t"))
    counted = events.key_by("k").window(window).aggregate(n=tm.count(), total=tm.sum("v")).uid(name)
    # No epoch is retired, so that the log tells all of it in the end.
    return tm.Job(name, outputs={name: tm.delta(counted, OUT + "/" + name)}, retained_epochs=100_000)


def tens():
    return job("tens", tm.tumbling("10 seconds"))


def slides():
    return job("slides", tm.sliding("30 seconds", "10 seconds"))


def bursts():
    return job("bursts", tm.session("5 seconds"))
'''


def write_code(root: Path) -> Path:
    """Write the jobs' module; returns its folder."""
    folder = root / "code"
    folder.mkdir()
    (folder / "soak_jobs.py").write_text(textwrap.dedent(CODE), encoding="utf-8")
    return folder


def spec_of(root: Path, job: str) -> JobSpec:
    """Return the spec of a job of the soak; its tables lie in ``out``."""
    return JobSpec(
        job,
        f"soak_jobs:{job}",
        trigger_ms=TRIGGER_MS,
        parallelism=1,
        master="local[1]",
        conf={**FEW_ROWS, "spark.ui.enabled": "false"},
        code_paths=(str(root / "code"),),
        variables={"SOAK_ROOT": str(root), "SOAK_OUT": str(root / "out")},
        restart=CALM,
    )


class Feeder:
    """Lets a file of events land every second, until told to end; event times are those of the second before, in order.

    Args:
        root: ``in`` below it is where files land.
        seed: of keys and values.
    """

    def __init__(self, root: Path, seed: int) -> None:
        self._root = root
        self._chance = random.Random(seed)
        self._from = SYSTEM_CLOCK.now_ms()
        self.rows = 0
        self._files = 0

    def land(self) -> None:
        """Let the next file land, whole: it is written elsewhere and renamed."""
        until = SYSTEM_CLOCK.now_ms()
        times = sorted(self._chance.randrange(self._from, until) for _ in range(_ROWS))
        made = [{"k": self._key(time), "t": time, "v": self._chance.randrange(1_000)} for time in times]
        unseen = self._root / f"{self._files:06}.json"
        unseen.write_text("".join(json.dumps(row) + "\n" for row in made), encoding="utf-8")
        unseen.rename(self._root / "in" / unseen.name)
        self._from, self._files, self.rows = until, self._files + 1, self.rows + len(made)

    def _key(self, time: int) -> str:
        # Half of the keys rest while the others are busy, so that sessions end.
        busy = time // 20_000 % 2
        return f"k{2 * self._chance.randrange(_KEYS // 2) + busy}"


def feeding(feeder: Feeder) -> AbstractContextManager[None]:
    """Let files land while the block runs."""
    return repeated(feeder.land, every=_EVERY_SECONDS)


def table(folder: Path, job: str) -> Counter[tuple[str, ...]]:
    """Return the rows of a job's table, with how often each is there."""
    rows = DeltaTable(str(folder / job)).to_pyarrow_table().to_pylist()
    return Counter(tuple(str(row[name]) for name in sorted(row)) for row in rows)
