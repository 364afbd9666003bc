"""The autoscaler of a store: it samples, records, and acts by the spec; of several one decides, and a crash repeats nothing."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from click.testing import CliRunner, Result

from tests.autoscaler.scaled_job import ScaledJob
from tidemark.cli.program.main import main
from tidemark.control.autoscaler import autoscaler as autoscaler_module
from tidemark.control.autoscaler.autoscaler import Autoscaler, with_decision
from tidemark.control.client.job_client import JobClient
from tidemark.control.desired.spec_store import read_generations
from tidemark.control.metrics.metric_catalog import JOB_METRICS
from tidemark.control.model.autoscaler_records import AutoscalerRecord, ScalingDecision, create_record, read_newest_record
from tidemark.control.model.autoscaler_settings import DAY_MS, AutoscalerSettings
from tidemark.control.model.paths import AUTOSCALER, numbered
from tidemark.control.observed.observe import Observation
from tidemark.control.view.view_builder import view_of
from tidemark.errors import StoreError
from tidemark.state.store.layout import job_folder
from tidemark.state.store.store import JobStore


def test_it_acts_by_the_spec_and_the_driver_stays() -> None:
    job = ScaledJob()
    job.minutes(20)
    job.world.run(job.reconciler, 10)
    assert job.spec.spec.parallelism == 4
    [_, made] = read_generations(job.world.store, "fares", 9)
    assert (made.by, made.generation) == ("autoscaler", 2)
    assert "need" in made.why
    assert "what parallelism 1 processes" in made.why
    assert len(job.world.of()) == 1, "no other process was started"
    assert job.world.status().lifecycle == "running"
    [decision] = job.record.decisions
    assert (decision.kind, decision.generation, decision.text) == ("scaled", 1, "parallelism 1 -> 4, intake 1 -> 2.8")
    assert job.record.totals == {"scaled": 1}


def test_by_default_it_advises_and_never_writes_the_spec() -> None:
    job = ScaledJob(AutoscalerSettings())
    job.minutes(90)
    assert job.spec.generation == 1
    assert [made.kind for made in job.record.decisions] == ["advised"]
    assert job.record.decisions[0].parallelism == 4, "four times as much at once, though there are 8 cores"
    view = view_of(job.world.observe(), job.world.clock.now_ms())
    assert view.autoscaler is not None
    assert view.autoscaler.evaluation is not None
    assert view.autoscaler.evaluation.recommended_parallelism == 4


def test_off_measures_nothing() -> None:
    job = ScaledJob(AutoscalerSettings(mode="off"))
    job.minutes(5)
    assert read_newest_record(job.world.store, "fares") is None
    assert view_of(job.world.observe(), job.world.clock.now_ms()).autoscaler is None


def test_of_several_supervisors_one_decides() -> None:
    job = ScaledJob()
    others = [Autoscaler(job.world.store, job.world.clock) for _ in range(3)]
    for _ in range(15):
        job.minute(*others)
    assert job.spec.generation == 2
    assert len(job.record.decisions) == 1
    assert len(job.record.samples) == 15


def test_a_crash_between_record_and_spec_is_made_good(monkeypatch: pytest.MonkeyPatch) -> None:
    job = ScaledJob()
    with monkeypatch.context() as patch:
        patch.setattr(Autoscaler, "_act", lambda *_: None)
        job.minutes(8)
    assert job.spec.generation == 1
    [decision] = job.record.decisions
    job.autoscaler = Autoscaler(job.world.store, job.world.clock)
    job.autoscaler.advance([job.world.observe()])
    assert (job.spec.generation, job.spec.spec.parallelism) == (2, decision.parallelism)
    job.autoscaler.advance([job.world.observe()])
    assert job.spec.generation == 2


@pytest.mark.parametrize("why_not", ["too late", "upgrade"])
def test_what_a_crash_left_is_not_made_good_later_or_in_an_upgrade(why_not: str, monkeypatch: pytest.MonkeyPatch) -> None:
    job = ScaledJob()
    with monkeypatch.context() as patch:
        patch.setattr(Autoscaler, "_act", lambda *_: None)
        job.minutes(8)
    if why_not == "too late":
        job.world.clock.advance(job.spec.spec.autoscaler.window_ms)
    with monkeypatch.context() as patch:
        patch.setattr(Observation, "active_upgrade", object() if why_not == "upgrade" else None)
        job.autoscaler.advance([job.world.observe()])
    assert job.spec.generation == 1


def test_a_change_that_somebody_else_made_in_between_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    job = ScaledJob()
    with monkeypatch.context() as patch:
        patch.setattr(Autoscaler, "_act", lambda *_: None)
        job.minutes(8)
    seen = job.world.observe()
    job.world.want(parallelism=2)
    job.autoscaler.advance([seen])
    assert (job.spec.generation, job.spec.spec.parallelism) == (2, 2)


def test_it_leaves_jobs_alone_that_are_stopped_upgraded_or_silent() -> None:
    job = ScaledJob()
    job.minutes(2)
    samples = len(job.record.samples)
    job.world.driver().frozen = True
    job.minutes(5)
    assert len(job.record.samples) == samples, "its heartbeat is old"
    job.world.driver().frozen = False
    JobClient(job.world.store, "ada", job.world.clock).stop("fares")
    job.minutes(2)
    assert len(job.record.samples) == samples
    view = view_of(job.world.observe(), job.world.clock.now_ms())
    assert view.autoscaler is not None
    assert view.autoscaler.evaluation is None, "it is outdated"


def test_a_long_epoch_is_not_taken_for_an_idle_job() -> None:
    job = ScaledJob()
    job.minutes(2)
    samples = len(job.record.samples)
    process = job.world.driver()
    process.idle = True
    for _ in range(30):
        job.world.clock.advance(10_000)
        job.world.busy(process, job.world.clock.now_ms() - 10_000)
        job.autoscaler.advance([job.world.observe()])
    assert len(job.record.samples) == samples


def test_decisions_from_before_the_clock_was_set_back_hold_nothing_up() -> None:
    job = ScaledJob()
    ahead = [ScalingDecision(job.world.clock.now_ms() + day * DAY_MS, "scaled", 2, 1, 1.0, 1.0, "another time") for day in range(9, 14)]
    assert create_record(job.world.store, AutoscalerRecord("fares", decisions=tuple(ahead)), 1)
    job.minutes(20)
    made = job.record.decisions[-1]
    assert (made.text, job.record.totals) == ("parallelism 1 -> 4, intake 1 -> 2.8", {"scaled": 1})


def test_a_damaged_record_begins_again() -> None:
    job = ScaledJob()
    job.minutes(3)
    job.world.store.at(job_folder("fares")).put(numbered(AUTOSCALER, 3), b"{oops")
    job.minute()
    assert len(job.record.samples) == 1
    files = job.world.store.at(job_folder("fares")).list(AUTOSCALER)
    assert [file.path for file in files][-1] == numbered(AUTOSCALER, 4)
    assert len(files) <= 3


def test_an_error_of_one_job_is_logged_once_and_stops_no_other(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    job = ScaledJob()
    create = create_record

    def fail_for_one(root: JobStore, record: AutoscalerRecord, number: int) -> bool:
        if record.job == "other":
            raise StoreError("the bucket is away", fix="wait")
        return create(root, record, number)

    monkeypatch.setattr(autoscaler_module, "create_record", fail_for_one)
    for _ in range(3):
        job.minute(look=False)
        seen = job.world.observe()
        job.autoscaler.advance([replace(seen, job="other", autoscaler=None), seen])
    assert len(job.record.samples) == 3
    [logged] = [message for message in caplog.messages if "other cannot be scaled" in message]
    assert "the bucket is away" in logged


def test_what_a_decision_does_not_change_stays_with_the_job() -> None:
    job = ScaledJob()
    job.minutes(8)
    [made] = job.record.decisions
    spec = with_decision(replace(job.spec.spec, parallelism=None), replace(made, parallelism=made.parallelism_before, intake=2.0))
    assert (spec.parallelism, spec.intake) == (None, 2.0)
    assert not spec.requires_restart_from(job.spec.spec)


def test_metrics() -> None:
    job = ScaledJob(AutoscalerSettings())
    job.minutes(8)
    view = view_of(job.world.observe(), job.world.clock.now_ms())
    found = {metric.info.name: list(metric.read(view)) for metric in JOB_METRICS if "autoscaler" in metric.info.name}
    assert found["tidemark_autoscaler_parallelism"] == [((), 1)]
    assert found["tidemark_autoscaler_recommended_parallelism"] == [((), 4)]
    assert found["tidemark_autoscaler_decisions_total"] == [(("advised",), 1), (("scaled",), 0)]
    assert found["tidemark_autoscaler_intake_ratio"] == [((), 1.0)]
    assert found["tidemark_autoscaler_recommended_intake_ratio"] == [((), 2.8)]
    [(_, utilization)] = found["tidemark_autoscaler_utilization_ratio"]
    assert utilization > 1.5


class TestCommand:
    """``tidemark autoscale``, and what other commands say."""

    @pytest.fixture
    def job(self, tmp_path_factory: pytest.TempPathFactory) -> ScaledJob:
        return ScaledJob(AutoscalerSettings(), store=JobStore.open(str(tmp_path_factory.mktemp("store"))))

    def said(self, job: ScaledJob, *arguments: str) -> Result:
        return CliRunner().invoke(main, [*arguments, "--store", job.world.store.uri])

    def test_advice_is_in_status_and_history(self, job: ScaledJob) -> None:
        job.minutes(8)
        shown = self.said(job, "autoscale", "fares")
        assert shown.exit_code == 0, shown.output
        lines = shown.output.splitlines()
        assert lines[0] == "fares: autoscaler advise"
        assert "bounds: parallelism 1 to the driver's cores, intake 0.0156 to 16, 4 changes in 24 hours" in lines[2]
        assert any("recommends: parallelism 1 -> 4" in line for line in lines)
        assert "advised  parallelism 1 -> 4, intake 1 -> 2.8: " in lines[-1]
        history = self.said(job, "history", "fares", "--changes").output
        assert "generation 1 advised" in history
        assert "parallelism 1 -> 4" in history

    def test_settings_are_changed_by_options_and_shown_as_json(self, job: ScaledJob) -> None:
        given = (
            "--mode",
            "act",
            "--max-parallelism",
            "2",
            "--quiet",
            "Mon-Fri 08:00-18:00",
            "--zone",
            "Asia/Tokyo",
            "--utilization",
            "0.5",
        )
        shown = self.said(job, "autoscale", "fares", *given, "--catch-up", "10 minutes", "--max-changes", "6", "--json")
        assert shown.exit_code == 0, shown.output
        settings = job.spec.spec.autoscaler
        assert settings == AutoscalerSettings(
            mode="act",
            utilization_target=0.5,
            utilization_min=0.25,
            utilization_max=0.7,
            catch_up_ms=600_000,
            max_parallelism=2,
            max_changes_per_day=6,
            quiet_times=("Mon-Fri 08:00-18:00",),
            zone="Asia/Tokyo",
        )
        assert json.loads(shown.output)["settings"]["max_parallelism"] == 2
        history = self.said(job, "history", "fares", "--changes").output
        assert "autoscale: autoscaler.mode advise -> act, autoscaler.utilization_target 0.7 -> 0.5" in history
        assert self.said(job, "autoscale", "fares", "--quiet", "").exit_code == 0
        assert job.spec.spec.autoscaler == replace(settings, quiet_times=())
        assert job.spec.generation == 3

    def test_a_file_sets_all(self, job: ScaledJob, tmp_path_factory: pytest.TempPathFactory) -> None:
        file = tmp_path_factory.mktemp("config") / "autoscaler.toml"
        file.write_text('[autoscaler]\nmode = "act"\ncatch_up = "1 hour"\nquiet_times = ["Sat,Sun 00:00-24:00"]\n')
        assert self.said(job, "autoscale", "fares", "--config", str(file)).exit_code == 0
        assert job.spec.spec.autoscaler == AutoscalerSettings(mode="act", catch_up_ms=3_600_000, quiet_times=("Sat,Sun 00:00-24:00",))
        for text, answer in (
            ("[autoscaler]\nmod = 'act'\n", "did you mean 'mode'?"),
            ("[autoscaler]\nutilization_min = 0.9\n", "not in order"),
            ("[autoscaler]\ncatch_up = 60\n", "catch_up = 60 is not a text"),
            ("[scaler]\n", "unknown 'scaler'"),
            ("[autoscaler\n", "not TOML"),
            ('mode = "act"\n', "write [autoscaler] in a line above them"),
        ):
            file.write_text(text)
            refused = self.said(job, "autoscale", "fares", "--config", str(file))
            assert refused.exit_code != 0
            assert answer in str(refused.exception or refused.output) + refused.output
        assert job.spec.generation == 2

    def test_what_is_refused(self, job: ScaledJob) -> None:
        for given, answer in (
            (("--min-parallelism", "8", "--max-parallelism", "2"), "max_parallelism=2 is too small"),
            (("--quiet", "at night"), "cannot be read"),
            (("--zone", "Berlin"), "no time zone"),
            (("--utilization", "70"), "is no share"),
        ):
            refused = self.said(job, "autoscale", "fares", *given)
            assert refused.exit_code != 0
            assert answer in str(refused.exception or "") + refused.output
        assert job.spec.generation == 1


def test_stores_in_memory_and_on_disk_hold_the_same(tmp_path_factory: pytest.TempPathFactory) -> None:
    found = []
    for store in (None, JobStore.open(str(tmp_path_factory.mktemp("store")))):
        job = ScaledJob(store=store)
        job.minutes(8)
        found.append(job.record)
    assert found[0] == found[1]
