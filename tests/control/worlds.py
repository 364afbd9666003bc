"""A world for the control plane's tests: a store in memory, a clock, machines with processes that behave like drivers, no JVM.

A driver does what a real one does with the store: it claims its attempt, begins a term of the job's log, beats, writes its status,
reads the spec. It moves only when it is told to (``tick``), so that whole lives happen within a test's moment.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace

from obstore.store import MemoryStore

from tidemark.control.desired.attempts import claim_attempt, require_newest
from tidemark.control.desired.spec_store import change_spec, require_spec
from tidemark.control.model.launcher import ProcessState
from tidemark.control.model.records import Attempt, ControlStatus, Lifecycle, ProcessHandle
from tidemark.control.model.spec import JobSpec, SpecGeneration
from tidemark.control.observed.observe import Observation, observe, read_control_status, status_or_error
from tidemark.control.reconcile.reconciler import Reconciler, ReconcileReport
from tidemark.control.upgrade.upgrade_worker import upgrading_reconciler
from tidemark.errors import FencedError, JobRunningError, LaunchError, StoreError, TidemarkError
from tidemark.locations import Location
from tidemark.state.log.joblog import Driver, JobLog
from tidemark.state.log.progress import EpochProgress
from tidemark.state.log.records import OwnerInfo
from tidemark.state.status.driver_load import EpochSample, Work, load_of
from tidemark.state.status.status import JobStatus, State, write_failure, write_status
from tidemark.state.store.store import JobStore, ListedFile
from tidemark.testing.manual_clock import ManualClock

START = 1_700_000_000_000
Hook = Callable[[str], None]
"""Called before and after whatever changes something; dies there, or lets others act."""


@dataclass(frozen=True)
class WatchedStore(JobStore):
    """A store that calls a hook around each operation."""

    hook: Hook = field(default=lambda _: None)

    def at(self, prefix: str) -> JobStore:
        inner = super().at(prefix)
        return WatchedStore(inner.location, inner.objects, inner.prefix, self.hook)

    def get(self, path: str) -> bytes:
        self.hook(f"get {path}")
        return super().get(path)

    def list(self, prefix: str = "", *, follow_links: bool = True, start: str = "") -> tuple[ListedFile, ...]:
        self.hook(f"list {prefix}")
        return super().list(prefix, follow_links=follow_links, start=start)

    def put(self, path: str, data: bytes) -> None:
        self.hook(f"put {path}")
        super().put(path, data)
        self.hook(f"was put {path}")

    def create(self, path: str, data: bytes) -> None:
        self.hook(f"create {path}")
        super().create(path, data)
        self.hook(f"was created {path}")

    def delete(self, paths: Iterable[str]) -> tuple[str, ...]:
        given = tuple(paths)
        self.hook(f"delete {given}")
        return super().delete(given)


@dataclass
class Process:
    """A driver's process. ``frozen``: it does not run, as after SIGSTOP; ``asked``: it got SIGTERM, ``signals`` times.

    ``idle``: it has no input, so it beats and commits nothing.
    """

    pid: int
    host: str
    job: str
    attempt: int
    takeover: bool
    alive: bool = True
    frozen: bool = False
    asked: bool = False
    signals: int = 0
    idle: bool = False
    exit_code: int | None = None
    term: Driver | None = None
    doomed: TidemarkError | None = None

    @property
    def drives(self) -> bool:
        return self.alive and self.term is not None

    @property
    def handle(self) -> ProcessHandle:
        return ProcessHandle("local", self.host, self.pid, started=f"birth-{self.pid}")

    @property
    def owner(self) -> OwnerInfo:
        return OwnerInfo(self.host, self.pid, f"birth-{self.pid}", f"attempt-{self.attempt}")

    def end(self, code: int) -> None:
        self.alive, self.exit_code = False, code


class World:
    """Store, clock and processes, and what may be asked of them."""

    def __init__(self, *, store: JobStore | None = None) -> None:
        self.clock = ManualClock(START)
        self.store = store or JobStore(Location.parse("s3://bucket/jobs"), MemoryStore())
        self.processes: list[Process] = []
        self.launched: list[tuple[str, int]] = []
        self.refuses_to_launch = 0
        self.work: Work | None = None
        self.intake = 1.0
        self._pids = itertools.count(100)

    def submit(self, job: str = "fares", **fields: object) -> SpecGeneration:
        return self.want(job, **{"code": "fares:job", **fields})

    def want(self, job: str = "fares", **fields: object) -> SpecGeneration:
        """Change fields of the spec."""

        def change(newest: SpecGeneration | None) -> JobSpec:
            return replace(newest.spec if newest else JobSpec(job, ""), **fields)  # type: ignore[arg-type]

        return change_spec(self.store, job, change, by="ada", why="a test", clock=self.clock)

    def reconciler(self, host: str = "host-a", hook: Hook | None = None) -> Reconciler:
        call = hook or (lambda _: None)
        store = WatchedStore(self.store.location, self.store.objects, self.store.prefix, call)
        return upgrading_reconciler(store, {"local": FakeLauncher(self, host, call)}, self.clock)

    def observe(self, job: str = "fares", host: str = "host-a") -> Observation:
        return observe(self.store, job, {"local": FakeLauncher(self, host)})

    def status(self, job: str = "fares") -> ControlStatus:
        found = read_control_status(self.store, job)
        assert found is not None
        return found

    def of(self, job: str = "fares") -> list[Process]:
        return [process for process in self.processes if process.job == job]

    def alive(self, job: str = "fares") -> list[Process]:
        return [process for process in self.of(job) if process.alive]

    def driver(self, job: str = "fares") -> Process:
        """Return the one process that lives."""
        found = self.alive(job)
        assert len(found) == 1, found
        return found[0]

    def launch(self, job: str, attempt: Attempt, host: str) -> ProcessHandle:
        if self.refuses_to_launch:
            self.refuses_to_launch -= 1
            raise LaunchError("no process could be started", fix="wait")
        self.launched.append((job, attempt.number))
        process = Process(next(self._pids), host, job, attempt.number, attempt.takeover)
        self.processes.append(process)
        return process.handle

    def find(self, handle: ProcessHandle) -> Process:
        return next(process for process in self.processes if process.pid == handle.pid)

    def run(self, reconciler: Reconciler, seconds: int, *, every: int = 5) -> ReconcileReport:
        """Let time pass, with drivers that work and a reconciler that looks."""
        report = reconciler.reconcile_all()
        for _ in range(0, seconds, every):
            self.tick(every)
            report = reconciler.reconcile_all()
        return report

    def tick(self, seconds: int = 5) -> None:
        """Let time pass, and every process do what is due."""
        self.clock.advance(seconds * 1000)
        for process in self.processes:
            if process.alive and not process.frozen:
                self.step(process)

    def step(self, process: Process) -> None:
        """Let a driver do what is next for it."""
        try:
            self._step(process)
        except FencedError:
            process.end(70)
        except JobRunningError as error:
            write_failure(self.store, process.job, error, owner=process.owner, at=self.clock.now_ms())
            process.end(75)
        except StoreError:
            # A heartbeat that fails is tried again; what an epoch cannot write ends the driver.
            if process.term is None or not process.idle:
                process.end(75)

    def _step(self, process: Process) -> None:
        if process.term is None:
            # A real driver starts Spark between the two.
            claim_attempt(self.store, process.job, process.attempt, process=process.handle, at=self.clock.now_ms())
            log = JobLog(self.store.at(process.job), process.job, self.clock)
            process.term = log.acquire(process.owner, takeover=process.takeover)
            require_newest(self.store, process.job, process.attempt)
            self.say(process, "running")
            return
        if process.idle:
            process.term.activity.polled(self.clock.now_ms())
        process.term.beat()
        if not process.idle:
            process.term.confirm()
        spec = require_spec(self.store, process.job).spec
        if process.doomed is not None:
            self.say(process, "failed", process.doomed)
            self._leave(process, 75 if process.doomed.transient else 64)
        elif process.asked or (spec.wanted == "suspended" and spec.stop == "finish"):
            self.say(process, "stopped")
            self._leave(process, 0)
        elif spec.wanted == "suspended" and spec.stop == "now":
            process.end(0)
        elif spec.wanted == "suspended":
            self.commit(process, end_of_input=True)
            self.say(process, "finished")
            self._leave(process, 0)
        elif not process.idle:
            self.commit(process)

    def commit(self, process: Process, *, end_of_input: bool = False) -> None:
        """Write what a driver writes after an epoch."""
        known, _ = status_or_error(self.store, process.job)
        epoch = known.last.epoch + 1 if known and known.last else 0
        progress = EpochProgress(process.job, "a1", epoch, self.clock.now_ms(), 100, 10, 1, end_of_input=end_of_input)
        self.say(process, "running", last=progress)

    def say(self, process: Process, state: State, error: TidemarkError | None = None, last: EpochProgress | None = None) -> None:
        known, _ = status_or_error(self.store, process.job)
        now = self.clock.now_ms()
        base = known or JobStatus(process.job, "a1", state, now, now)
        # As a real driver, it says what it goes on from by the log, where the world keeps one.
        head = process.term.last if process.term is not None else None
        found = last or (head.progress if head is not None else base.last)
        # The load of a driver is known from its first epoch on.
        epoch = replace(load_of([EpochSample(0, 100, 10, 1)], 10_000), work=self.work, intake=self.intake)
        load = epoch if last is not None else base.load if base.owner == process.owner else None
        status = replace(base, state=state, heartbeat_at=now, owner=process.owner, last=found, load=load)
        write_status(self.store, status.with_error(error))

    def busy(self, process: Process, since: int | None) -> None:
        """Let a driver say that an epoch is at hand since then."""
        assert process.term is not None
        process.term.activity.busy_since = since
        process.term.beat()

    def by_hand(self, job: str = "fares") -> Driver:
        """Let somebody drive the job whom no attempt started, as ``tidemark run`` does."""
        return JobLog(self.store.at(job), job, self.clock).acquire(OwnerInfo("host-c", 7, "birth-7", "by hand"))

    def _leave(self, process: Process, code: int) -> None:
        assert process.term is not None
        process.term.release()
        process.end(code)


@dataclass(frozen=True)
class FakeLauncher:
    """Starts and finds processes of the world on one host."""

    world: World
    host: str
    hook: Hook = field(default=lambda _: None)

    def launch(self, spec: SpecGeneration, attempt: Attempt, store_uri: str) -> ProcessHandle:
        assert store_uri == self.world.store.uri
        self.hook("launch")
        handle = self.world.launch(spec.spec.job, attempt, self.host)
        self.hook("was launched")
        return handle

    def probe(self, handle: ProcessHandle) -> ProcessState:
        if handle.host != self.host:
            return "unknown"
        return "alive" if self.world.find(handle).alive else "gone"

    def exit_code(self, handle: ProcessHandle) -> int | None:
        return self.world.find(handle).exit_code if handle.host == self.host else None

    def ask_to_stop(self, handle: ProcessHandle) -> None:
        self.hook("ask to stop")
        if handle.host == self.host:
            process = self.world.find(handle)
            process.asked, process.signals = True, process.signals + 1

    def kill(self, handle: ProcessHandle) -> None:
        self.hook("kill")
        if handle.host == self.host and self.world.find(handle).alive:
            self.world.find(handle).end(-9)

    def logs(self, handle: ProcessHandle, lines: int) -> tuple[str, ...]:
        return tuple(f"line {number} of process {handle.pid}" for number in range(lines))


def lifecycle(world: World, expected: Lifecycle) -> None:
    """Check what a job is doing by its status."""
    status = world.status()
    assert status.lifecycle == expected, status
