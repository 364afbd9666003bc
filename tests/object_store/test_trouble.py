"""An S3 that loses its answers, is away for a while or for long, or refuses: nothing happens twice, and errors say what to do."""

from __future__ import annotations

import traceback
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta

import pytest
from click.testing import CliRunner

from tests.control.worlds import World, lifecycle
from tests.http_server import free_port
from tests.object_store.s3_server import ACCESS_KEY, SECRET, Fault, Now, S3Server
from tests.savepoints.stored_jobs import StoredJob, live_files
from tidemark.cli.program.command_groups import TEMPORARY
from tidemark.cli.program.main import main
from tidemark.control.client.job_client import JobClient
from tidemark.control.model.spec import JobSpec
from tidemark.errors import StoreError
from tidemark.savepoints.model.restore import Restore
from tidemark.state.store import object_stores
from tidemark.state.store.store import JobStore


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(object_stores.RETRY_CONFIG, "retry_timeout", timedelta(seconds=0.2))


def printed(error: BaseException) -> str:
    """Return all that is printed of an error, with what it came from."""
    return "".join(traceback.format_exception(error))


def test_what_was_written_though_the_answer_was_lost_is_not_done_twice(root: JobStore, s3: S3Server) -> None:
    lost = Now("lost", "PUT")
    with s3.failing(lost):
        JobClient(root, "ada").submit(JobSpec("taxi", "fares:job"))
        job = StoredJob(root)
        first, second = job.commit(2), job.commit(1, dropped=1)
        job.savepoints.take("a")
        fork = StoredJob(root, "fork", job.clock)
        begun = fork.restore(Restore("a", job="taxi"))
    assert len(lost.met) > 15
    assert all(count == 1 for count in lost.met.values())
    assert list(job.log.epochs()) == [second, first]
    assert [item.name for item in job.savepoints.list()] == ["a"]
    assert live_files(begun) == {("taxi", path) for _, path in live_files(second)}
    assert [file.path for file in root.at("taxi/control/specs").list()] == ["00000001.json"]


def test_a_conflict_over_an_object_that_is_not_there_in_the_end_is_no_object(root: JobStore, s3: S3Server) -> None:
    with s3.failing(Now("conflict", "PUT", times=2)):
        root.create("a", b"first")
    with s3.failing(Now("conflict", "PUT", times=2)), pytest.raises(FileExistsError):
        root.create("a", b"second")
    assert root.get("a") == b"first"
    with s3.failing(Now("conflict", "PUT", times=99)), pytest.raises(StoreError, match=r"This is why \(ConditionalRequestConflict\)"):
        root.create("b", b"never")
    assert not root.exists("b")


@pytest.mark.parametrize("method", ["GET", "PUT", "POST"])
def test_a_store_that_is_away_for_a_moment_is_asked_again(world: World, s3: S3Server, method: str) -> None:
    world.submit()
    reconciler = world.reconciler()
    away = Now("away", method)
    with s3.failing(away):
        reconciler.reconcile_all()
        world.tick()
        reconciler.reconcile_all()
        world.store.delete(["nothing", "nowhere"])
    assert away.met
    lifecycle(world, "running")
    assert world.launched == [("fares", 1)]


@pytest.mark.usefixtures("impatient")
def test_a_store_that_is_away_for_long_costs_one_pass_and_says_so(s3: S3Server) -> None:
    world = World(store=s3.new_store())
    world.submit()
    reconciler = world.reconciler()
    world.run(reconciler, 10)
    with s3.failing(lambda _method, _path: "away"):
        with pytest.raises(StoreError, match=r"cannot list s3://.*: This is why \(SlowDown\)") as caught:
            reconciler.reconcile_all()
        assert "wait; it was retried" in caught.value.fix
        assert SECRET not in printed(caught.value)
    world.clock.advance(5_000)
    world.run(reconciler, 20)
    lifecycle(world, "running")


@dataclass(frozen=True)
class Trouble:
    """What is wrong, and what is said of it; ``{port}`` in variables is one that nobody listens on."""

    what: str
    fix: str
    variables: Mapping[str, str | None] = field(default_factory=dict)
    bucket: str | None = None
    fault: Fault | None = None


NOBODY = "http://127.0.0.1:{port}"
TROUBLES = {
    "bucket": Trouble("NoSuchBucket", "make the bucket, or correct its name", bucket="no-such-bucket"),
    "denied": Trouble("This is why (InvalidAccessKeyId)", "check AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY", fault="denied"),
    "nobody": Trouble("error sending request", "the service does not answer", {"AWS_ENDPOINT_URL": NOBODY}),
    "no TLS": Trouble("builder error", "AWS_ALLOW_HTTP=true", {"AWS_ALLOW_HTTP": None}),
    "half a key": Trouble("Missing SecretAccessKey", "check AWS_ACCESS_KEY_ID", {"AWS_SECRET_ACCESS_KEY": None}),
    "no key": Trouble(
        "error sending request",
        "no credentials were found",
        {"AWS_ACCESS_KEY_ID": None, "AWS_SECRET_ACCESS_KEY": None, "AWS_METADATA_ENDPOINT": NOBODY},
    ),
}


@pytest.mark.usefixtures("impatient")
@pytest.mark.parametrize("name", TROUBLES)
def test_errors_say_what_to_do_and_hold_no_credentials(name: str, root: JobStore, s3: S3Server, monkeypatch: pytest.MonkeyPatch) -> None:
    trouble = TROUBLES[name]
    for variable, value in trouble.variables.items():
        if value is None:
            monkeypatch.delenv(variable)
        else:
            monkeypatch.setenv(variable, value.format(port=free_port()))
    store = root.uri if trouble.bucket is None else f"s3://{trouble.bucket}/jobs"
    with s3.failing(lambda _method, _path: trouble.fault):
        done = CliRunner().invoke(main, ["list", "--store", store])
        with pytest.raises(StoreError) as caught:
            JobStore.open(store).get("taxi/status.json")
    # A bucket that is not there does not come by itself.
    assert done.exit_code == (1 if trouble.bucket else TEMPORARY)
    for text in (done.output, printed(caught.value)):
        assert trouble.what in text
        assert trouble.fix in text
        assert store in text
        assert SECRET not in text
        assert ACCESS_KEY not in text
