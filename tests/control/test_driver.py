"""A driver before Spark is there: it claims its attempt, watches its spec, and says what keeps it from running. No JVM."""

from __future__ import annotations

import json
import logging
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tidemark.clock import SYSTEM_CLOCK
from tidemark.control.desired.attempts import abandon_attempt, create_attempt, read_claim
from tidemark.control.desired.job_import import load_job
from tidemark.control.desired.spec_store import change_spec
from tidemark.control.driver.driver import FENCED, FINISHED, TERMINAL, drive, main
from tidemark.control.driver.driver_signals import stop_on_signals
from tidemark.control.driver.spec_watch import SpecWatch, polling
from tidemark.control.launch.logs import JobLogFormatter, limit_size, log_to, rotate, tail
from tidemark.control.launch.run_folder import read_exit_status, write_exit_status
from tidemark.control.model.records import Attempt, ProcessHandle
from tidemark.control.model.spec import JobSpec, StopMode
from tidemark.errors import DefinitionError, StoreError
from tidemark.state.log.progress import EpochProgress
from tidemark.state.status.status import read_status
from tidemark.state.store.store import JobStore

PROCESS = ProcessHandle("local", "host-a", 4711, started="boot:1")

CODES = {
    "raises": ("raise ZeroDivisionError('at import')", "the code of 'raises:job' fails: ZeroDivisionError: at import"),
    "leaves": ("import sys; sys.exit(3)", "the code of 'leaves:job' fails: SystemExit: 3"),
    "lacks": ("import nowhere_to_be_found", "module 'lacks' cannot be imported: No module named 'nowhere_to_be_found'"),
    "empty": ("", "'job' in module 'empty' is missing"),
    "number": ("job = 5", "is a int, not a job"),
    "calls": ("def job():\n    return {}['key']", "the code of 'calls:job' fails: KeyError: 'key'"),
    "leaks": (
        "raise ValueError('cannot connect to postgres://ada:hunter2@db/x')",
        "ValueError: cannot connect to postgres://<hidden>@db/x",
    ),
    "leaks_on_import": ("raise ImportError('no https://hunter2@host/x')", "cannot be imported: no https://<hidden>@host/x"),
    "leaks_its_own": (
        "from tidemark.errors import SourceError\nraise SourceError('DB_PASS=hunter2 is wrong', fix='look')",
        "DB_PASS=<hidden> is wrong",
    ),
    "other": (
        """
import tidemark as tm
rows = tm.source("r", tm.from_elements([(1,)], schema="t BIGINT"), watermarks=tm.bounded_out_of_orderness("0 ms", timestamp="t"))
job = tm.Job("rides", outputs={"rows": tm.memory(rows, "rows")})
""",
        "other:job is job 'rides', and was submitted as 'fares'",
    ),
}


@pytest.fixture
def store(tmp_path: Path) -> JobStore:
    return JobStore.open(str(tmp_path / "store"))


@pytest.fixture
def code(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    for name, (text, _) in CODES.items():
        (tmp_path / f"{name}.py").write_text(text)
    monkeypatch.syspath_prepend(str(tmp_path))
    yield tmp_path
    for name in CODES:
        sys.modules.pop(name, None)


def want(store: JobStore, **fields: object) -> int:
    spec = JobSpec("fares", **{"code": "raises:job", **fields})  # type: ignore[arg-type]
    return change_spec(store, "fares", lambda _: spec, by="ada", why="a test", clock=SYSTEM_CLOCK).generation


def begin(store: JobStore, number: int = 1, *, generation: int = 1) -> int:
    create_attempt(store, "fares", Attempt(number, generation, 0, "ada", "a test"))
    return drive(store, "fares", number, process=PROCESS, lines=JobLogFormatter("fares"))


@pytest.mark.parametrize("module", CODES)
def test_code_that_cannot_be_loaded_is_said_in_the_status(store: JobStore, code: Path, module: str) -> None:
    assert code.exists()
    want(store, code=f"{module}:job")
    assert begin(store) == TERMINAL
    status = read_status(store, "fares")
    assert status is not None
    assert (status.state, status.error_transient, status.owner is not None and status.owner.run_id) == ("failed", False, "attempt-1")
    assert CODES[module][1] in (status.error or "")
    assert "hunter2" not in (status.error or "")
    assert status.error_code == ("TM200" if module == "leaks_its_own" else "TM100")
    claim = read_claim(store, "fares", 1)
    assert claim is not None
    assert claim.process == PROCESS


def test_an_attempt_is_run_once_and_only_the_newest(store: JobStore, code: Path) -> None:
    assert code.exists()
    want(store)
    assert begin(store) == TERMINAL
    assert begin(store) == FENCED, "it was claimed"
    create_attempt(store, "fares", Attempt(3, 1, 0, "ada", "a test"))
    assert begin(store, 2) == FENCED, "there is a newer one"
    assert abandon_attempt(store, "fares", 3, by="a reconciler", at=0)
    assert begin(store, 3) == FENCED, "it was given up"
    assert begin(store, 9, generation=7) == TERMINAL, "its spec is not there"


def test_one_that_is_not_wanted_any_more_ends_before_it_begins(store: JobStore, code: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert code.exists()
    want(store)
    watch = SpecWatch(store, "fares", 1, exit_now=lambda: pytest.fail("asked to finish, not to leave"))
    watch.poll()
    assert (watch.stop_mode, watch.stopping.is_set()) == (None, False)
    want(store, wanted="suspended")
    watch.poll()
    assert (watch.stop_mode, watch.stopping.is_set()) == ("finish", True)
    asked: list[bool] = []
    monkeypatch.setattr("tidemark.control.desired.job_import.load_job", lambda *given: asked.append(bool(given)))
    create_attempt(store, "fares", Attempt(1, 1, 0, "ada", "a test"))
    assert drive(store, "fares", 1, process=PROCESS, lines=JobLogFormatter("fares")) == FINISHED
    assert asked == [], "neither the code nor Spark was needed"


@pytest.mark.parametrize(("first", "then"), [("finish", "drain"), ("drain", "finish")])
def test_how_it_is_to_end_may_change(store: JobStore, first: StopMode, then: StopMode) -> None:
    want(store)
    watch = SpecWatch(store, "fares", 1, exit_now=lambda: None)
    want(store, wanted="suspended", stop=first)
    watch.poll()
    want(store, wanted="suspended", stop=then)
    watch.poll()
    assert (watch.stop_mode, watch.stopping.is_set()) == (then, True)
    assert watch.drain_event().is_set() == (then != "drain")


def test_signals_ask_for_an_end_however_many_come(store: JobStore, caplog: pytest.LogCaptureFixture) -> None:
    watch = SpecWatch(store, "fares", 1, exit_now=lambda: None)
    before = signal.getsignal(signal.SIGTERM)
    with caplog.at_level(logging.INFO, "tidemark"), stop_on_signals(watch):
        for _ in range(3):
            signal.raise_signal(signal.SIGTERM)
        assert watch.stopping.is_set()
        signal.raise_signal(signal.SIGINT)
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
    assert [record.getMessage() for record in caplog.records] == ["SIGTERM: stopping after the current epoch"]
    assert signal.getsignal(signal.SIGTERM) is before


def test_an_end_at_once_and_a_newer_attempt(store: JobStore) -> None:
    want(store)
    left: list[bool] = []
    watch = SpecWatch(store, "fares", 1, exit_now=lambda: left.append(True))
    want(store, wanted="suspended", stop="now")
    watch.poll()
    watch.poll()
    assert left == [True]
    create_attempt(store, "fares", Attempt(2, 1, 0, "ada", "a test"))
    watch.poll()
    assert watch.replaced is not None
    assert "replaced by attempt 2" in str(watch.replaced)
    assert watch.stopping.is_set()
    assert watch.drain_event().is_set()


def test_a_store_that_cannot_be_reached_is_looked_at_again(store: JobStore, caplog: pytest.LogCaptureFixture) -> None:
    watch = SpecWatch(store, "fares", 1, exit_now=lambda: None)
    calls: list[int] = []

    def failing() -> None:
        calls.append(1)
        if len(calls) == 1:
            raise StoreError("the store is away", fix="wait")
        watch.stopping.set()

    with caplog.at_level(logging.WARNING), polling(watch, failing, seconds=0.01):
        assert watch.stopping.wait(10)
    assert "the store is away" in caplog.text


def test_a_store_that_cannot_be_opened(tmp_path: Path) -> None:
    (tmp_path / "store").write_text("a file")
    root = logging.getLogger()
    before, level = list(root.handlers), root.level
    try:
        log = tmp_path / "logs" / "driver.log"
        arguments = ["--store", str(tmp_path / "store"), "--job", "fares", "--attempt", "1", "--log", str(log)]
        assert main(arguments) == TERMINAL
        assert any("TM400" in line for line in tail(log, 50))
        assert tail(log, 1)[0].endswith("ends with exit code 64")
    finally:
        for handler in set(root.handlers) - set(before):
            root.removeHandler(handler)
            handler.close()
        root.setLevel(level)


def test_json_lines_say_job_lineage_and_epoch(tmp_path: Path) -> None:
    lines = JobLogFormatter("fares", "json")
    lines.after_epoch(EpochProgress("fares", "a1", 7, 0, 0, 0, 0))
    error = DefinitionError("wrong", fix="mend it")
    record = logging.LogRecord(
        "tidemark", logging.ERROR, "f.py", 1, "failed at %s", ("https://u:secret@h/",), (DefinitionError, error, None)
    )
    found = json.loads(lines.format(record))
    assert (found["job"], found["lineage"], found["epoch"], found["level"], found["code"]) == ("fares", "a1", 7, "error", "TM100")
    assert "secret" not in json.dumps(found)
    text = JobLogFormatter("fares").format(record)
    assert "ERROR" in text
    assert "secret" not in text
    root = logging.getLogger()
    before, level = list(root.handlers), root.level
    handler = log_to(tmp_path / "a" / "driver.log", lines)
    try:
        logging.getLogger("tidemark").info("one line")
    finally:
        root.removeHandler(handler)
        handler.close()
        root.setLevel(level)
    assert root.handlers == before
    assert json.loads(tail(tmp_path / "a" / "driver.log", 1)[0])["message"] == "one line"


def test_what_is_printed_stays_bounded(tmp_path: Path) -> None:
    out = tmp_path / "driver.out"
    with out.open("a") as appending:
        appending.write("x" * 100)
        appending.flush()
        limit_size(out, limit=100)
        assert out.stat().st_size == 100
        appending.write("y")
        appending.flush()
        limit_size(out, limit=100)
        appending.write("z")
    assert out.read_text() == "z"
    assert (tmp_path / "driver.out.1").read_text() == "x" * 100 + "y"
    for number in range(5):
        out.write_text(str(number))
        rotate(out, files=3)
    assert sorted((path.name, path.read_text()) for path in tmp_path.iterdir()) == [("driver.out.1", "4"), ("driver.out.2", "3")]
    assert tail(tmp_path / "none", 5) == ()


def test_how_a_process_ended_is_its_own(tmp_path: Path) -> None:
    log = tmp_path / "driver.log"
    assert read_exit_status(log, pid=1, started="a") is None
    write_exit_status(log, pid=1, started="a", code=75)
    assert read_exit_status(log, pid=1, started="a") == 75
    assert read_exit_status(log, pid=1, started="b") is None
    log.with_name("driver.exit").write_text("half a li")
    assert read_exit_status(log, pid=1, started="a") is None


def test_a_job_is_found_by_name() -> None:
    with pytest.raises(DefinitionError, match="does not name a job"):
        load_job("examples.taxi.job")
    assert load_job("examples.taxi.job:job").name == "taxi"
