"""Takes, disposals, forks, restores, claims, retention, crashes and sweeps in any order, against a model of what is needed."""

from __future__ import annotations

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from tests.savepoints.stored_jobs import LEASE, StoredJob, clock_ahead, live_files, store_in_memory
from tidemark.errors import CorruptStoreError
from tidemark.savepoints.model.restore import Mode, Restore
from tidemark.savepoints.restore.restoring import begin_lineage, prepare_restore
from tidemark.savepoints.restore.shared_files import acquire_files
from tidemark.state.gc.pins import Pins
from tidemark.state.log.joblog import JobLog
from tidemark.state.log.records import EpochRecord
from tidemark.state.store.store import JobStore

JOBS = ("one", "two", "three")
job_names = st.sampled_from(JOBS)


class ManyJobs(RuleBasedStateMachine):
    """Three jobs of one store, each with a driver. What is needed is known from the records that were written, not from the store."""

    @initialize()
    def begin(self) -> None:
        self.root = self.new_root()
        self.clock = clock_ahead()
        self.jobs = {name: StoredJob(self.root, name, self.clock) for name in JOBS}
        self.retained: dict[str, list[EpochRecord]] = {name: [] for name in JOBS}
        self.savepoints: dict[tuple[str, str], EpochRecord] = {}
        self.claims: dict[tuple[str, str], tuple[str, str]] = {}
        self.committed: set[tuple[str, str]] = set()
        self.left_behind: dict[tuple[str, str], tuple[str, int]] = {}
        self.marked: set[tuple[str, str]] = set()
        self.count = 0

    def new_root(self) -> JobStore:
        """Return the root of the store that an example has."""
        return store_in_memory()

    @rule(name=job_names, added=st.integers(0, 4), dropped=st.integers(0, 4), rows=st.booleans())
    def commit(self, name: str, added: int, dropped: int, *, rows: bool = False) -> None:
        staged = self.jobs[name].stage_rows() if rows else None
        record = self.jobs[name].commit(added, dropped, rows=staged)
        self.retained[name].append(record)
        self.committed |= staged_rows(name, record)

    @rule(name=job_names, count=st.integers(0, 3))
    def crash_while_staging(self, name: str, count: int) -> None:
        job = self.jobs[name]
        for _ in range(count):
            job.stage("hourly", 0)
            last = job.driver.last
            place = (job.log.origin(), 0) if last is None else (last.lineage, last.epoch + 1)
            self.left_behind[name, job.stage_rows().files[0].path] = place
        job.restart()

    @precondition(lambda self: any(self.retained.values()))
    @rule(data=st.data())
    def take(self, data: st.DataObject) -> None:
        name = data.draw(st.sampled_from([name for name in JOBS if self.retained[name]]))
        record = data.draw(st.sampled_from(self.retained[name]))
        self.count += 1
        taken = self.jobs[name].savepoints.take(f"s{self.count}", epoch=record.epoch, lineage=record.lineage)
        assert taken.record == record
        self.savepoints[name, taken.name] = record

    @precondition(lambda self: self.savepoints)
    @rule(data=st.data())
    def dispose(self, data: st.DataObject) -> None:
        name, savepoint = data.draw(st.sampled_from(sorted(self.savepoints)))
        self.jobs[name].savepoints.dispose(savepoint)
        del self.savepoints[name, savepoint]

    @precondition(lambda self: self.savepoints)
    @rule(data=st.data(), into=job_names, mode=st.sampled_from(["no-claim", "claim"]))
    def restore(self, data: st.DataObject, into: str, mode: Mode) -> None:
        owner, savepoint = data.draw(st.sampled_from(sorted(self.savepoints)))
        begun = self.jobs[into].restore(Restore(savepoint, job=owner, mode=mode))
        self.retained[into].append(begun)
        if mode == "claim":
            self.claims[into, begun.lineage] = (owner, savepoint)

    @rule(name=job_names, into=job_names, mode=st.sampled_from(["no-claim", "claim"]), added=st.integers(1, 3))
    def fork(self, name: str, into: str, mode: Mode, added: int) -> None:
        self.commit(name, added, 0)
        self.count += 1
        savepoint = f"f{self.count}"
        self.savepoints[name, savepoint] = self.jobs[name].savepoints.take(savepoint).record
        begun = self.jobs[into].restore(Restore(savepoint, job=name, mode=mode))
        self.retained[into].append(begun)
        if mode == "claim":
            self.claims[into, begun.lineage] = (name, savepoint)

    @rule(name=job_names, count=st.integers(1, 3))
    def leave_a_lineage_with_rows_of_a_crash(self, name: str, count: int) -> None:
        self.commit(name, 1, 0, rows=True)
        self.crash_while_staging(name, count)
        self.fork(name, name, "no-claim", 1)

    @precondition(lambda self: self.savepoints)
    @rule(data=st.data(), into=job_names)
    def a_savepoint_goes_while_it_is_restored(self, data: st.DataObject, into: str) -> None:
        owner, savepoint = data.draw(st.sampled_from(sorted(self.savepoints)))
        restore = Restore(savepoint, job=owner, mode="claim")
        found, record = prepare_restore(self.root, self.jobs[into].driver, restore)
        self.dispose_of(owner, savepoint)
        self.sweep_all()
        try:
            begin_lineage(self.jobs[into].driver, restore, found, record)
        except CorruptStoreError:
            return
        raise AssertionError(savepoint)

    @precondition(lambda self: self.savepoints)
    @rule(data=st.data(), into=job_names, mode=st.sampled_from(["no-claim", "claim"]))
    def crash_before_the_restore(self, data: st.DataObject, into: str, mode: Mode) -> None:
        owner, savepoint = data.draw(st.sampled_from(sorted(self.savepoints)))
        found, record = prepare_restore(self.root, self.jobs[into].driver, Restore(savepoint, job=owner, mode=mode))
        acquire_files(self.jobs[into].driver, found, record, claim=mode == "claim")
        self.jobs[into].restart()

    @rule(name=job_names)
    def move_on(self, name: str) -> None:
        """A job forgets all that it was: only what others took from it is needed from then on."""
        for owner, savepoint in sorted(self.savepoints):
            if owner == name:
                self.dispose_of(owner, savepoint)
        self.commit(name, 0, 99)
        for _ in range(2):
            self.keep_house(name, 1)

    @rule(name=job_names, keep=st.integers(1, 4))
    def keep_house(self, name: str, keep: int) -> None:
        self.clock.advance(LEASE + 1)
        self.jobs[name].keep_house(retained=keep)
        self.retained[name] = self.retained[name][-keep:]
        self.settle_claims(name)
        self.sweep_rows(name)

    def sweep_thoroughly(self) -> None:
        for _ in range(2):
            self.sweep_all()
        # What a job lets go of, others see at their next sweep: once per job in a chain of forks, and twice to delete it.
        for _ in range(2 * len(JOBS)):
            self.sweep_all()
        self.rows_are_there_as_long_as_they_may_be_shown()
        for name in JOBS:
            assert self.jobs[name].state_files() == {path for owner, path in self.needed() if owner == name}

    def sweep_all(self) -> None:
        self.clock.advance(LEASE + 1)
        for name in JOBS:
            self.jobs[name].keep_house()
            self.settle_claims(name)
            self.sweep_rows(name)

    def sweep_rows(self, name: str) -> None:
        """Of what attempts left behind goes what was found unused before, and is found what is no older than its lineage's epochs."""
        gone = {left for left in self.marked if left[0] == name}
        self.marked -= gone
        for left in gone:
            del self.left_behind[left]
        last = self.jobs[name].driver.last
        oldest = {self.jobs[name].log.origin(): 0} if last is None else {}
        for record in reversed(self.retained[name]):
            oldest[record.lineage] = record.epoch
        self.marked |= {
            left for left, (lineage, epoch) in self.left_behind.items() if left[0] == name and epoch >= oldest.get(lineage, epoch + 1)
        }

    def dispose_of(self, owner: str, savepoint: str) -> None:
        self.jobs[owner].savepoints.dispose(savepoint)
        del self.savepoints[owner, savepoint]

    def settle_claims(self, name: str) -> None:
        lineages = {record.lineage for record in self.retained[name] if self.is_first(record)}
        for (borrower, lineage), claimed in list(self.claims.items()):
            if borrower == name and lineage not in lineages:
                self.savepoints.pop(claimed, None)
                del self.claims[borrower, lineage]

    def is_first(self, record: EpochRecord) -> bool:
        """Whether a record is the one that its lineage began with."""
        return record.parent is not None and record.parent.epoch == record.epoch

    @invariant()
    def all_that_is_needed_is_there(self) -> None:
        there = {(name, path) for name in JOBS for path in self.jobs[name].state_files()}
        assert self.needed() <= there

    @invariant()
    def rows_are_there_as_long_as_they_may_be_shown(self) -> None:
        """What was ever committed may be in a table; of the rest all goes that can be known to be nobody's."""
        there = {(name, path) for name in JOBS for path in self.jobs[name].staged_files()}
        assert there == self.committed | self.left_behind.keys()

    def teardown(self) -> None:
        """Whatever happened, the store holds what the model does, and nothing else in the end."""
        if not hasattr(self, "jobs"):
            return
        self.sweep_thoroughly()
        for name in JOBS:
            log = JobLog(self.jobs[name].folder, name, self.clock)
            assert list(log.epochs()) == self.retained[name][::-1]
            assert {pin.name: pin.record for pin in Pins(log).list()} == {
                savepoint: record for (owner, savepoint), record in self.savepoints.items() if owner == name
            }

    def needed(self) -> set[tuple[str, str]]:
        kept = [(name, record) for name, records in self.retained.items() for record in records]
        kept += [(owner, record) for (owner, _), record in self.savepoints.items()]
        return {(owner or name, path) for name, record in kept for owner, path in live_files(record)}


def staged_rows(name: str, record: EpochRecord) -> set[tuple[str, str]]:
    return {(name, file.path) for output in record.outputs.values() for file in output.files}


TestManyJobs = ManyJobs.TestCase
TestManyJobs.settings = settings(
    max_examples=20, stateful_step_count=25, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much]
)
