"""Whatever happens to reconcilers and drivers, and whenever: never two drivers, and in the end what the spec wants."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.control.worlds import Process, World
from tidemark.control.model.records import ACTIVE
from tidemark.control.model.spec import JobSpec, RestartPolicy
from tidemark.errors import EngineError, SourceError, StoreError, TidemarkError
from tidemark.state.log.joblog import JobLog
from tidemark.state.store.store import JobStore

CALM = RestartPolicy(initial_ms=1_000, longest_ms=10_000, same_epoch_failures=0)
CHANGES = (
    {"wanted": "suspended", "stop": "finish"},
    {"wanted": "suspended", "stop": "now"},
    {"wanted": "suspended", "stop": "drain"},
    {"wanted": "running"},
    {"version": "2"},
    {"trigger_ms": 5_000},
)


QUIET = 8
"""So many looks without news are longer than it takes to see that a driver hangs."""


class Died(BaseException):
    """A reconciler was killed."""


POINTS = (
    "never",
    "create control/leases",
    "was created control/leases",
    "create control/attempts",
    "was created control/attempts",
    "create control/claims",
    "was created control/claims",
    "put control/status",
    "was put control/status",
    "launch",
    "was launched",
    "ask to stop",
    "kill",
    "get control/status",
    "list control",
)


@dataclass
class Meeting:
    """Something that happens to a reconciler once, at one of the points, the first, second or third time it gets there."""

    at: int
    what: Callable[[], None]
    count: int = 0

    def hook(self, operation: str) -> None:
        if self.at and operation.startswith(POINTS[self.at % len(POINTS)]):
            self.count += 1
            if self.count == self.at // len(POINTS) + 1:
                self.what()


NOTHING = Meeting(0, lambda: None)


def die() -> None:
    raise Died


def unreachable() -> None:
    raise StoreError("cannot write: no route to host", fix="wait")


def passes(world: World, host: str, meeting: Meeting) -> None:
    """Let a new reconciler look once, with what it meets on the way."""
    try:
        world.reconciler(host, meeting.hook).reconcile_all()
    except (Died, StoreError):
        return


@st.composite
def events(draw: st.DrawFn) -> list[tuple[str, int, int]]:
    """Return what happens, each with two numbers."""
    kinds = st.sampled_from(
        [
            "pass",
            "pass",
            "pass",
            "die",
            "meet",
            "late",
            "cut",
            "tick",
            "tick",
            "kill",
            "freeze",
            "fail",
            "break",
            "no launch",
            "want",
            "want",
        ]
    )
    return draw(st.lists(st.tuples(kinds, st.integers(1, 44), st.integers(0, 5)), max_size=25))


def happen(world: World, hosts: tuple[str, ...], event: tuple[str, int, int]) -> None:
    """Let one thing happen, and look whether all is as it must be."""
    kind, number, choice = event
    host, other = hosts[choice % len(hosts)], hosts[(choice + 1) % len(hosts)]
    met: dict[str, Callable[[], None]] = {
        "die": die,
        "cut": unreachable,
        # It is overtaken while it holds the lease, or sleeps until that, and more, is over.
        "meet": lambda: meet(world, other, 1, kills=choice % 2 == 1),
        "late": lambda: meet(world, other, 65, kills=choice % 2 == 1),
    }
    others: dict[str, Callable[[], object]] = {
        "pass": lambda: passes(world, host, NOTHING),
        "tick": lambda: world.tick(number),
        "no launch": lambda: setattr(world, "refuses_to_launch", 1),
        "want": lambda: world.want(**CHANGES[choice]),
    }
    if kind in met:
        passes(world, host, Meeting(number, met[kind]))
    elif kind in others:
        others[kind]()
    else:
        for process in world.alive():
            harm(process, kind)
    check(world, strict=len(hosts) == 1)


def meet(world: World, host: str, seconds: int, *, kills: bool) -> None:
    """Let another reconciler do its work meanwhile."""
    for pause in (seconds, 1, 5, 1):
        world.tick(pause)
        passes(world, host, NOTHING)
    if kills:
        for process in world.alive():
            process.end(-9)


def harm(process: Process, kind: str) -> None:
    errors: dict[str, TidemarkError] = {"fail": EngineError("an executor was lost", fix="look"), "break": SourceError("gone", fix="look")}
    if kind == "kill":
        process.end(-9)
    elif kind == "freeze":
        process.frozen = True
    else:
        process.doomed = errors[kind]


def check(world: World, *, strict: bool) -> None:
    assert len(world.launched) == len(set(world.launched)), "an attempt was launched twice"
    driving = [process for process in world.of() if process.drives]
    if strict:
        assert len(driving) <= 1, driving
        newest = max((number for _, number in world.launched), default=0)
        assert all(process.attempt == newest for process in driving), "a driver runs whose attempt was given up"
    else:
        # A machine that cannot be reached keeps its process; only one of them can commit.
        term = JobLog(world.store.at("fares"), "fares", world.clock).load().term
        assert sum(process.term is not None and process.term.term == term for process in driving) <= 1


def settle(world: World, hosts: tuple[str, ...]) -> None:
    """Let nothing bad happen any more, and everybody work, until all is quiet."""
    world.refuses_to_launch = 0
    reconcilers = [world.reconciler(host) for host in hosts]
    quiet = 0
    for _ in range(300):
        world.tick(10)
        acted = [
            done for reconciler in reconcilers for done in reconciler.reconcile_all().results if done.actions or done.lease_held_elsewhere
        ]
        check(world, strict=len(hosts) == 1)
        quiet = 0 if acted or world.status().lifecycle in {*ACTIVE, "failing"} - {"running"} else quiet + 1
        if quiet == QUIET:
            return
    raise AssertionError(f"it never came to rest: {world.status()}")


def require_wanted(world: World, spec: JobSpec, *, broken: bool) -> None:
    """Make sure that the job is as its spec wants it."""
    status = world.status()
    driving = [process for process in world.of() if process.drives and not process.frozen]
    if status.lifecycle == "failed":
        assert broken, status
        assert driving == []
    elif spec.wanted == "suspended":
        assert status.lifecycle in {"suspended", "finished"}, status
        assert driving == []
    elif status.lifecycle != "finished":
        assert status.lifecycle == "running", status
        assert [process.attempt for process in driving] == [status.attempt]
        attempted = world.observe().attempt_spec
        assert attempted is not None
        assert not spec.requires_restart_from(attempted.spec)


def live(hosts: tuple[str, ...], happens: list[tuple[str, int, int]], store: JobStore | None = None) -> None:
    """Let a job live through what happens, in a store in memory where none is given."""
    world = World(store=store)
    spec = world.submit(restart=CALM, hang_after_ms=60_000, start_timeout_ms=60_000)
    for event in happens:
        happen(world, hosts, event)
    settle(world, hosts)
    spec = world.want()
    require_wanted(world, spec.spec, broken=any(kind == "break" for kind, _, _ in happens))


def submitted(world: World) -> None:
    """Nothing runs yet."""
    assert world.launched == []


def killed(world: World) -> None:
    """The driver was killed, and the next start is due."""
    world.run(world.reconciler(), 15)
    world.driver().end(-9)
    world.reconciler().reconcile_all()
    world.tick(5)


def cancelled(world: World) -> None:
    world.run(world.reconciler(), 15)
    world.want(wanted="suspended", stop="now")


def upgraded(world: World) -> None:
    world.run(world.reconciler(), 15)
    world.want(version="2")


def never_launched(world: World) -> None:
    """Who was to launch the driver died, long ago."""
    passes(world, "host-a", Meeting(POINTS.index("launch"), die))
    world.tick(65)


@pytest.mark.parametrize("before", [submitted, killed, cancelled, upgraded, never_launched])
@pytest.mark.parametrize("event", ["die", "meet", "late", "cut"])
def test_whatever_happens_at_each_point_is_gone_on_with(before: Callable[[World], None], event: str) -> None:
    for point in range(1, len(POINTS)):
        world = World()
        world.submit(restart=CALM, hang_after_ms=60_000, start_timeout_ms=60_000)
        before(world)
        # Who comes between kills the driver that it finds, or started.
        happen(world, ("host-a",), (event, point, 1))
        settle(world, ("host-a",))
        require_wanted(world, world.want().spec, broken=False)


@given(events())
def test_on_one_machine_there_is_never_a_second_driver(happens: list[tuple[str, int, int]]) -> None:
    live(("host-a",), happens)


@given(events())
def test_on_two_machines_only_one_driver_can_commit(happens: list[tuple[str, int, int]]) -> None:
    live(("host-a", "host-b"), happens)
