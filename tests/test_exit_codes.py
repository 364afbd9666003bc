"""What a command ends with: a mistake that stays one is never told from one that may pass by trying again (docs/how-to/operations.md)."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

import pytest
from click.testing import CliRunner

from tidemark.cli.program.main import main
from tidemark.control.client.job_client import JobClient
from tidemark.control.model.spec import JobSpec
from tidemark.savepoints.core.savepoint_store import SavepointStore
from tidemark.state.log.joblog import JobLog
from tidemark.state.log.progress import EpochProgress
from tidemark.state.log.records import EpochRecord, OwnerInfo
from tidemark.state.store.store import JobStore

PAGE: Final = Path(__file__).parent.parent / "docs" / "how-to" / "operations.md"
CODE: Final = """
import tidemark as tm
rows = tm.source(
    "rows", tm.from_elements([("a", 1)], schema="k STRING, at BIGINT"), watermarks=tm.bounded_out_of_orderness("1 s", timestamp="at")
)
job = tm.Job("shop", outputs={"out": tm.delta(rows, "out")})
"""
DONE, FAILED, MISUSED, UNWELL, TEMPORARY = 0, 1, 2, 3, 75

CASES: Final[tuple[tuple[str, int], ...]] = (
    # What is defined wrongly.
    ("run wrong:job", FAILED),
    ("run nowhere:job", FAILED),
    ("run shop:stream", FAILED),
    ("run shop:job --trigger soon", FAILED),
    ("run shop:job --restore nope", FAILED),
    ("run shop:job --conf password=hunter2hunter2", FAILED),
    ("graph wrong:job", FAILED),
    ("submit wrong:job", FAILED),
    ("submit wrong:job --no-wait", FAILED),
    ("submit shop:job --code-path nowhere --no-wait", FAILED),
    ("submit shop:job --code-path nowhere", FAILED),
    ("submit shop:job --name shop --code-path nowhere --timeout 1s", FAILED),
    ("submit shop:job --folder nowhere --no-wait", FAILED),
    ("submit shop:job --env API_TOKEN=hunter2hunter2 --no-wait", FAILED),
    ("submit shop:job --restart fixed --restart-attempts 99 --no-wait", FAILED),
    # Names that there are not.
    *((f"{verb} nobody", FAILED) for verb in ("status", "history", "logs", "start", "stop", "cancel", "restart", "suspend", "resume")),
    ("savepoint trigger nobody", FAILED),
    ("savepoint show trips nope", FAILED),
    ("rewind trips --to nope", MISUSED),
    ("diff trips nobody", MISUSED),
    ("fork trips --as other --from nope", FAILED),
    ("check nowhere:job", MISUSED),
    ("check wrong:job", MISUSED),
    ("state show trips nope", FAILED),
    # What is refused.
    ("discard trips", FAILED),
    ("promote trips", FAILED),
    ("upgrade trips", FAILED),
    ("logs trips", FAILED),
    ("savepoint trigger empty", FAILED),
    # Places that can be no store.
    ("status --store nowhere", FAILED),
    ("run shop:job --store shop.py", FAILED),
    ("run shop:job --store shop.py/jobs", FAILED),
    ("submit shop:job --no-wait --store shop.py", FAILED),
    ("supervise --once --store shop.py", FAILED),
    # What no launcher can start, as often as that is tried: the job has failed.
    ("submit shop:job --launcher spark-submit --master local[1] --conf spark.submit.deployMode=cluster --timeout 20s", UNWELL),
    # What was not understood.
    ("statsu", MISUSED),
    ("status --chekc", MISUSED),
    ("submit shop:job --trigger", MISUSED),
    # What may pass.
    ("rewind driven --to before", TEMPORARY),
    # What is fine.
    ("status", DONE),
    ("history trips", DONE),
    ("submit shop:job --name elsewhere --code-path nowhere --no-wait", DONE),
    ("suspend idle", DONE),
)


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> JobStore:
    """A folder with code, and a store with jobs: one that ran, one that is driven, one that never ran."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "shop.py").write_text(CODE)
    (tmp_path / "wrong.py").write_text(CODE + 'rows.key_by("kk")\n')
    store = JobStore.open(str(tmp_path / "store"))
    monkeypatch.setenv("TIDEMARK_STORE", store.uri)
    for name in ("trips", "driven"):
        log = JobLog(store.at(name), name)
        term = log.acquire(OwnerInfo("host-a", 7, "birth", "by hand"))
        progress = EpochProgress(name, "a1", 0, 1_000, 1, 1, 1)
        term.append(EpochRecord(name, "a1", None, term.term, 0, 1_000, "0", progress))
        SavepointStore(store, name).take("before")
        if name == "trips":
            term.release()
    for name in ("idle", "empty"):
        JobClient(store, "ada").submit(JobSpec(name, "shop:job", wanted="suspended"))
    return store


@pytest.mark.usefixtures("place")
@pytest.mark.parametrize(("typed", "code"), CASES, ids=[typed for typed, _ in CASES])
def test_what_a_command_ends_with(typed: str, code: int) -> None:
    done = CliRunner().invoke(main, typed.split(" "), terminal_width=200)
    assert done.exit_code == code, (done.output, done.exception)
    assert "Traceback" not in done.output
    if code in {FAILED, UNWELL, TEMPORARY}:
        assert re.search(r"^(tidemark: \[TM\d+\] |Error: )", done.stderr, re.MULTILINE), done.stderr


def test_the_page_says_what_each_means() -> None:
    table = PAGE.read_text().partition("## Exit codes")[2].partition("\n## ")[0]
    assert {int(code) for code in re.findall(r"^\| (\d+) \|", table, re.MULTILINE)} == {DONE, FAILED, MISUSED, UNWELL, TEMPORARY}
