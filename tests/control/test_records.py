"""What the control plane writes down: its form is for ever, of several writers one wins, and what cannot be is refused."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
from obstore.store import MemoryStore

from tidemark.control.desired.attempts import abandon_attempt, claim_attempt, create_attempt, delete_attempts, read_claim, require_newest
from tidemark.control.desired.spec_checks import checked_spec
from tidemark.control.desired.spec_store import change_spec, read_generations, read_spec, require_spec
from tidemark.control.model.paths import ATTEMPTS, CLAIMS, CONTROL_STATUS, LEASES, SPECS, numbered
from tidemark.control.model.records import Attempt, ControlStatus, ErrorInfo, Failure, Lease, ProcessHandle, Suspicion, attempt_of
from tidemark.control.model.spec import AlertThresholds, JobSpec, RestartPolicy, SpecGeneration
from tidemark.control.observed.leases import LEASE_MS, is_held, release_lease, take_lease
from tidemark.control.observed.observe import read_control_status, write_control_status
from tidemark.errors import CorruptStoreError, DefinitionError, FencedError, FormatError, InvalidNameError, TidemarkError, UnknownJobError
from tidemark.locations import Location
from tidemark.state.log.process_identity import current_owner
from tidemark.state.log.records import OwnerInfo
from tidemark.state.store.documents import read_document
from tidemark.state.store.store import JobStore
from tidemark.testing.manual_clock import ManualClock

GOLDEN = Path(__file__).parent / "golden"
NOW = 1_700_000_000_000
HERE = ProcessHandle("local", "host-a", 4711, started="boot:123", log="/var/log/fares.log")
SPEC = JobSpec(
    "fares",
    "examples.fares:job",
    version="7",
    wanted="suspended",
    stop="drain",
    restarts=2,
    trigger_ms=5_000,
    parallelism=4,
    launcher="spark-submit",
    master="spark://127.0.0.1:7077",
    conf={"spark.executor.memory": "2g"},
    code_paths=("/code/fares.whl",),
    folder="/work",
    variables={"FARES_ROOT": "/lake"},
    restart=RestartPolicy(kind="rate", failures_per=5),
    adaptive_intake=True,
    alerts=AlertThresholds(lag_warn_ms=60_000, savepoint_age_ms=86_400_000),
    start_timeout_ms=120_000,
    hang_after_ms=600_000,
)
FAILURE = Failure(NOW, 3, NOW - 5_000, 7, "TM502", "an executor was lost", transient=True)
STATUS = ControlStatus(
    "fares",
    "failing",
    NOW,
    generation=2,
    attempt=3,
    process=replace(HERE, pid=None, application="application_1"),
    failures=(FAILURE,),
    next_start_at=NOW + 1_000,
    restarts_done=1,
    reason="attempt 3 failed",
    error=ErrorInfo("TM502", "an executor was lost", transient=True),
    asked_at=NOW,
    suspicion=Suspicion(NOW, 12, "there is no heartbeat"),
    counted_from=2,
    asked="drain",
)


@pytest.fixture(params=["memory", "disk"])
def root(request: pytest.FixtureRequest, tmp_path: Path) -> JobStore:
    """A store: obstore's put-if-absent is another on each backend."""
    if request.param == "disk":
        return JobStore.open(str(tmp_path / "store"))
    return JobStore(Location.parse("s3://bucket/jobs"), MemoryStore())


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(NOW)


def together(*work: Callable[[], object]) -> list[object]:
    """Do things at once, each in its thread, and return what they gave or raised."""
    results: list[object] = [None] * len(work)
    gate = threading.Barrier(len(work))

    def go(index: int) -> None:
        gate.wait()
        try:
            results[index] = work[index]()
        except TidemarkError as error:
            results[index] = error

    threads = [threading.Thread(target=go, args=(index,)) for index in range(len(work))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return results


def given(spec: JobSpec, _newest: SpecGeneration | None) -> JobSpec:
    """Return the spec, whatever there is."""
    return spec


def write_all(root: JobStore, clock: ManualClock) -> dict[str, str]:
    """Write one record of each kind; returns the golden file of each path."""
    change_spec(root, "fares", lambda _: SPEC, by="ada", why="a test", clock=clock)
    create_attempt(root, "fares", Attempt(1, 1, NOW, "ada/1", "submitted", takeover=True))
    claim_attempt(root, "fares", 1, process=HERE, at=NOW)
    abandon_attempt(root, "fares", 2, by="ada/1", at=NOW)
    take_lease(root, "fares", holder="ada/1", now=NOW)
    write_control_status(root, STATUS)
    return {
        numbered(SPECS, 1): "spec-1.json",
        numbered(ATTEMPTS, 1): "attempt-1.json",
        numbered(CLAIMS, 1): "claim-1.json",
        numbered(CLAIMS, 2): "claim-given-up-1.json",
        numbered(LEASES, 1): "job-lease-1.json",
        CONTROL_STATUS: "control-status-1.json",
    }


def test_golden_records_are_written_as_ever(root: JobStore, clock: ManualClock) -> None:
    for path, golden in write_all(root, clock).items():
        assert root.get(f"fares/{path}") == (GOLDEN / golden).read_bytes(), path


def test_a_job_that_is_stopped_for_a_rewind_has_a_golden_record(root: JobStore, clock: ManualClock) -> None:
    paused = replace(SPEC, wanted="suspended", for_rewind=True)
    change_spec(root, "fares", lambda _: paused, by="ada", why="a test", clock=clock)
    path = f"fares/{numbered(SPECS, 1)}"
    golden = (GOLDEN / "spec-for-rewind-1.json").read_bytes()
    assert root.get(path) == golden
    root.put(path, golden)
    assert read_spec(root, "fares") == SpecGeneration(1, NOW, "ada", "a test", paused)


def test_golden_records_are_read_as_ever(root: JobStore) -> None:
    for path, golden in write_all(JobStore(root.location, MemoryStore()), ManualClock(NOW)).items():
        root.put(f"fares/{path}", (GOLDEN / golden).read_bytes())
    assert read_spec(root, "fares") == SpecGeneration(1, NOW, "ada", "a test", SPEC)
    assert read_control_status(root, "fares") == STATUS
    claims = [read_claim(root, "fares", number) for number in (1, 2)]
    assert [claim.process for claim in claims if claim is not None] == [HERE, None]


def test_damage_and_newer_formats_are_refused(root: JobStore, clock: ManualClock) -> None:
    paths = write_all(root, clock)
    for path in (numbered(SPECS, 1), numbered(CLAIMS, 1)):
        good = root.get(f"fares/{path}")
        for bad, error in ((good[:-1], CorruptStoreError), (b'{"format":9}', FormatError)):
            root.put(f"fares/{path}", bad)
            with pytest.raises(error, match=r"fares/control.*Fix: "):
                read_spec(root, "fares") if "specs" in path else read_claim(root, "fares", 1)
        assert path in paths
        root.put(f"fares/{path}", good)
    root.put(f"fares/{CONTROL_STATUS}", b"{}")
    assert read_control_status(root, "fares") is None


# ------------------------------------------------------------------------------------------------------------ generations


def test_generations_count_up_and_stay(root: JobStore, clock: ManualClock) -> None:
    for version in ("1", "2", "2", "3"):
        clock.advance(1)
        spec = replace(SPEC, version=version)
        change_spec(root, "fares", partial(given, spec), by="ada", why=f"v{version}", clock=clock)
    found = read_generations(root, "fares", 10)
    assert [(item.generation, item.spec.version, item.why) for item in found] == [(1, "1", "v1"), (2, "2", "v2"), (3, "3", "v3")]
    assert read_generations(root, "fares", 2) == found[-2:]


def test_changes_at_once_all_count(root: JobStore, clock: ManualClock) -> None:
    change_spec(root, "fares", lambda _: replace(SPEC, restarts=0), by="ada", why="submit", clock=clock)

    def restart(by: str) -> Callable[[], object]:
        def one_more(newest: SpecGeneration | None) -> JobSpec:
            assert newest is not None
            return replace(newest.spec, restarts=newest.spec.restarts + 1)

        return lambda: change_spec(root, "fares", one_more, by=by, why="restart", clock=clock)

    made = together(*(restart(f"user {number}") for number in range(8)))
    assert sorted(item.generation for item in made if isinstance(item, SpecGeneration)) == list(range(2, 10))
    assert require_spec(root, "fares").spec.restarts == 8


def test_an_unknown_job_has_no_spec(root: JobStore) -> None:
    assert read_spec(root, "fares") is None
    with pytest.raises(UnknownJobError, match=r"no job 'fares' was submitted.*Fix: submit it first"):
        require_spec(root, "fares")
    with pytest.raises(InvalidNameError):
        read_spec(root, "../fares")


@pytest.mark.parametrize(
    ("spec", "says"),
    [
        (replace(SPEC, code="fares"), "code='fares' does not name a job"),
        (replace(SPEC, trigger_ms=-1), "trigger_ms=-1"),
        (replace(SPEC, parallelism=0), "parallelism=0"),
        (replace(SPEC, hang_after_ms=10), "hang_after_ms=10"),
        (replace(SPEC, variables={"A-B": "x"}), "'A-B' cannot be the name"),
        (replace(SPEC, variables={"DB_PASSWORD": "hunter2"}), "DB_PASSWORD looks like a secret"),
        (replace(SPEC, conf={"spark.hadoop.fs.s3a.secret.key": "hunter2"}), "fs.s3a.secret.key looks like a secret"),
        (replace(SPEC, variables={"MYSQL_PWD": "hunter2"}), "MYSQL_PWD looks like a secret"),
        (replace(SPEC, conf={"spark.driver.extraJavaOptions": "-Dx=y -Dpw=hunter2"}), "extraJavaOptions looks like a secret"),
        (replace(SPEC, master="k8s://https://ada:hunter2@host"), "master looks like a secret"),
        (replace(SPEC, folder="/work?token=hunter2"), "folder looks like a secret"),
        (replace(SPEC, code_paths=("https://hunter2@host/x.zip",)), "code_paths looks like a secret"),
        (replace(SPEC, outputs_root="s3://ada:hunter2@lake/x"), "outputs_root looks like a secret"),
        (replace(SPEC, conf={"spark.jars.repositories": "https://ada:hunter2@repo.example/x"}), "looks like a secret"),
        (replace(SPEC, restart=RestartPolicy(initial_ms=10, longest_ms=5)), "restart.longest_ms=5"),
        (replace(SPEC, restart=RestartPolicy(factor=0.5)), "restart.factor=0.5"),
        (replace(SPEC, restart=RestartPolicy(jitter=1.5)), "restart.jitter=1.5"),
        (replace(SPEC, restart=RestartPolicy(factor=float("nan"))), "restart.factor=nan"),
        (replace(SPEC, restart=RestartPolicy(failures_per=50)), "more failures than are stored"),
        (replace(SPEC, folder="a\0b"), "null character"),
    ],
)
def test_a_spec_that_cannot_be_is_refused_and_not_written(spec: JobSpec, says: str, root: JobStore, clock: ManualClock) -> None:
    with pytest.raises(DefinitionError, match="Fix: ") as caught:
        change_spec(root, "fares", lambda _: spec, by="ada", why="", clock=clock)
    assert says in str(caught.value)
    assert "hunter2" not in str(caught.value)
    assert root.list() == ()


def test_settings_about_secrets_that_hold_none_are_taken() -> None:
    conf = {
        "spark.hadoop.fs.s3a.aws.credentials.provider": "software.amazon.awssdk.auth.credentials.DefaultCredentialsProvider",
        "spark.hadoop.fs.s3a.endpoint": "https://minio.example:9000",
        "spark.kubernetes.authenticate.driver.serviceAccountName": "spark",
        "spark.ssl.keyStorePasswordFile": "/run/secrets/store",
    }
    assert checked_spec(replace(SPEC, conf=conf)).conf == conf


def test_a_job_whose_spec_holds_what_looks_like_a_secret_can_be_stopped() -> None:
    """A release that knew fewer of them took it."""
    old = replace(SPEC, wanted="running", variables={"DB_PASS": "hunter2"}, master="k8s://https://ada:hunter2@host")
    assert checked_spec(replace(old, wanted="suspended"), old).wanted == "suspended"
    with pytest.raises(DefinitionError, match="DB_PASS looks like a secret"):
        checked_spec(replace(old, variables={"DB_PASS": "hunter3"}), old)


def test_a_spec_says_what_needs_another_driver() -> None:
    assert checked_spec(SPEC) is SPEC
    same = replace(SPEC, wanted="running", stop="now", restart=RestartPolicy(), alerts=AlertThresholds(), hang_after_ms=None)
    assert not SPEC.requires_restart_from(same)
    for other in (replace(SPEC, version="8"), replace(SPEC, restarts=3), replace(SPEC, conf={}), replace(SPEC, master="local[1]")):
        assert SPEC.requires_restart_from(other)
    assert SPEC.has_other_code_than(replace(SPEC, version="8"))
    assert not SPEC.has_other_code_than(replace(SPEC, restarts=3))


# --------------------------------------------------------------------------------------------------------------- attempts


def test_of_many_who_create_an_attempt_one_does(root: JobStore) -> None:
    made = together(*(lambda by=by: create_attempt(root, "fares", Attempt(1, 1, NOW, f"by {by}", "why")) for by in range(8)))
    assert sorted(map(bool, made)) == [False] * 7 + [True]


def test_of_many_processes_one_claims(root: JobStore) -> None:
    create_attempt(root, "fares", Attempt(1, 1, NOW, "ada", "why"))
    claims = [lambda pid=pid: claim_attempt(root, "fares", 1, process=replace(HERE, pid=pid), at=NOW) for pid in range(6)]
    made = together(*claims, lambda: abandon_attempt(root, "fares", 1, by="ada", at=NOW))
    won = [item for item in made if isinstance(item, Attempt) or item is True]
    assert len(won) == 1, made
    assert len([item for item in made if isinstance(item, FencedError)]) >= 5


def test_an_attempt_that_was_given_up_or_replaced_runs_no_more(root: JobStore) -> None:
    create_attempt(root, "fares", Attempt(1, 1, NOW, "ada", "why"))
    assert abandon_attempt(root, "fares", 1, by="ada", at=NOW)
    assert abandon_attempt(root, "fares", 1, by="bob", at=NOW + 1), "it is given up, whoever did it"
    with pytest.raises(FencedError, match="attempt 1 was abandoned before its process started"):
        claim_attempt(root, "fares", 1, process=HERE, at=NOW)
    create_attempt(root, "fares", Attempt(2, 1, NOW, "ada", "why"))
    create_attempt(root, "fares", Attempt(3, 1, NOW, "ada", "why"))
    with pytest.raises(FencedError, match="attempt 2 was replaced by attempt 3"):
        claim_attempt(root, "fares", 2, process=HERE, at=NOW)
    claim_attempt(root, "fares", 3, process=HERE, at=NOW)
    assert not abandon_attempt(root, "fares", 3, by="ada", at=NOW)
    with pytest.raises(FencedError, match="attempt 3 belongs to process 4711 on host 'host-a'"):
        claim_attempt(root, "fares", 3, process=replace(HERE, pid=4712), at=NOW)
    require_newest(root, "fares", 3)


def test_old_attempts_go_with_their_claims(root: JobStore) -> None:
    for number in (1, 2, 3):
        create_attempt(root, "fares", Attempt(number, 1, NOW, "ada", "why"))
        abandon_attempt(root, "fares", number, by="ada", at=NOW)
    delete_attempts(root, "fares", 3)
    assert [file.path for file in root.list("fares")] == [f"fares/{numbered(ATTEMPTS, 3)}", f"fares/{numbered(CLAIMS, 3)}"]


def test_a_run_s_name_says_which_attempt_it_is() -> None:
    owner = OwnerInfo("host-a", 1, run_id=Attempt(12, 1, NOW, "", "").run_id)
    assert attempt_of(owner) == 12
    for run_id in ("", "attempt-", "attempt-x", "5f3a"):
        assert attempt_of(replace(owner, run_id=run_id)) is None
    assert attempt_of(None) is None


# ----------------------------------------------------------------------------------------------------------------- leases


def test_of_many_who_take_a_lease_one_has_it(root: JobStore) -> None:
    made = together(*(lambda holder=holder: take_lease(root, "fares", holder=f"r{holder}", now=NOW) for holder in range(8)))
    assert len([lease for lease in made if lease is not None]) == 1


def test_a_lease_ends_by_itself_or_when_it_is_released(root: JobStore) -> None:
    first = take_lease(root, "fares", holder="a", now=NOW)
    assert first is not None
    assert take_lease(root, "fares", holder="b", now=NOW + LEASE_MS - 1) is None
    assert take_lease(root, "fares", holder="a", now=NOW) == Lease(2, "a", NOW + LEASE_MS), "its holder may renew it"
    second = take_lease(root, "fares", holder="b", now=NOW + LEASE_MS)
    assert second is not None
    release_lease(root, "fares", second)
    third = take_lease(root, "fares", holder="a", now=NOW + LEASE_MS)
    assert third is not None
    release_lease(root, "fares", second)  # late, and without effect
    assert take_lease(root, "fares", holder="b", now=NOW + LEASE_MS) is None


def test_a_lease_of_a_clock_that_was_set_back_does_not_last(root: JobStore) -> None:
    take_lease(root, "fares", holder="a", now=NOW + 3_600_000)
    assert take_lease(root, "fares", holder="b", now=NOW) is not None
    assert not is_held(Lease(1, "a", NOW), NOW)


def test_a_lease_of_a_process_that_is_gone_is_not_waited_for(root: JobStore) -> None:
    here, gone = current_owner(), replace(current_owner(), started="another boot:1")
    elsewhere = replace(gone, host="elsewhere")
    for number, (owner, waits) in enumerate(((here, True), (elsewhere, True), (None, True), (gone, False))):
        job = f"fares-{number}"
        taken = take_lease(root, job, holder="a", now=NOW, owner=owner)
        assert taken is not None
        found = take_lease(root, job, holder="b", now=NOW + 1, owner=here)
        assert (found is None) == waits, owner


def test_a_lease_with_its_process_has_a_golden_record(root: JobStore) -> None:
    path, golden = f"fares/{numbered(LEASES, 1)}", (GOLDEN / "job-lease-owner-1.json").read_bytes()
    taken = take_lease(root, "fares", holder="ada/1", now=NOW, owner=OwnerInfo("host-a", 7, "boot:7"))
    assert root.get(path) == golden
    root.put(path, golden)
    assert read_document(root.at("fares"), numbered(LEASES, 1), kind="lease", form=Lease) == taken


def test_few_leases_are_kept(root: JobStore) -> None:
    for turn in range(20):
        assert take_lease(root, "fares", holder="a", now=NOW + turn) is not None
    assert len(root.list("fares")) <= 5


def test_who_slept_while_its_number_went_by_has_no_lease(root: JobStore) -> None:
    """Its number was taken, ended and deleted by others while it slept between looking and taking."""
    for turn in range(6):
        take_lease(root, "fares", holder=f"r{turn}", now=NOW + turn * LEASE_MS)
    stale = {file.path for file in root.list("fares")}

    class Sleeper(JobStore):
        def list(self, prefix: str = "", *, follow_links: bool = True, start: str = "") -> tuple:  # type: ignore[type-arg]
            found = super().list(prefix, follow_links=follow_links, start=start)
            if not seen:
                seen.append(found)
                return tuple(file for file in found if file.path.endswith("00000003.json"))
            return found

        def at(self, prefix: str) -> JobStore:
            inner = super().at(prefix)
            return Sleeper(inner.location, inner.objects, inner.prefix)

    seen: list[object] = []
    root.delete([f"fares/{numbered(LEASES, 4)}"])
    late = Sleeper(root.location, root.objects, root.prefix)
    assert take_lease(late, "fares", holder="late", now=NOW + 10 * LEASE_MS) is None
    assert {file.path for file in root.list("fares")} == stale - {f"fares/{numbered(LEASES, 4)}"}


def test_what_is_kept_is_plain_json_without_surprises(root: JobStore, clock: ManualClock) -> None:
    write_all(root, clock)
    for file in root.list():
        assert set(json.loads(root.get(file.path))) == {"kind", "format", "sha256", "body"}
