from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import dagster as dg
import deltalake
import pytest

import tidemark as tm
from tests.dagster.fake_engine import ENGINES, FakeEngine, FakeEpoch, FakeRun, FakeTidemark, fake_resource, make_job, window_rows
from tidemark.assets import (
    Conservation,
    LateRatio,
    NoGaps,
    UniquePanes,
    WatermarkFreshness,
    build_asset_checks,
    expectation_checks,
    streaming_assets,
)
from tidemark.assets.checks.check import OutputCheck
from tidemark.errors import DefinitionError, UserCodeError
from tidemark.resources.run_events import StreamingEvent
from tidemark.semantics.windows.windows import WindowAssigner
from tidemark.state.log.progress import OutputProgress
from tidemark.state.log.totals import add_epoch, empty_totals
from tidemark.state.status.history import HistoryWriter
from tidemark.state.status.status import read_status, write_status
from tidemark.state.store.layout import history_path
from tidemark.state.store.store import JobStore

pytestmark = pytest.mark.dagster

Evaluations = dict[str, dg.AssetCheckEvaluation]


def check_run(job: tm.Job, store: Path, *checks: OutputCheck, epochs: tuple[FakeEpoch, ...]) -> Evaluations:
    """Run the epochs as one materialization and return its checks by name."""

    @streaming_assets(job=job, checks=checks)
    def cabs(context: dg.AssetExecutionContext, tidemark: FakeTidemark) -> Iterator[StreamingEvent]:
        yield from tidemark.run(context=context)

    resource = fake_resource(store)
    ENGINES[str(store)].queue += epochs
    result = dg.materialize([cabs], resources={"tidemark": resource})
    return {evaluation.check_name: evaluation for evaluation in result.get_asset_check_evaluations()}


def standalone(job: tm.Job, store: Path, *checks: OutputCheck) -> Evaluations:
    definitions = dg.Definitions(
        assets=[dg.AssetSpec(["cabs", name]) for name in job.outputs], asset_checks=build_asset_checks(job, checks, store=str(store))
    )
    result = definitions.resolve_implicit_global_asset_job_def().execute_in_process()
    return {evaluation.check_name: evaluation for evaluation in result.get_asset_check_evaluations()}


def value(evaluation: dg.AssetCheckEvaluation, key: str) -> object:
    return evaluation.metadata[key].value


def test_a_sound_run_passes_all_of_tidemarks_checks(tmp_path: Path) -> None:
    epochs = (FakeEpoch(window_rows((1, 0, 0, 3), (2, 0, 0, 1)), rejected=2, malformed=1), FakeEpoch(window_rows((1, 1, 0, 3))))
    checks = (Conservation(), UniquePanes(), NoGaps(), LateRatio(), WatermarkFreshness(reference="newest_event"))
    found = check_run(make_job(tmp_path), tmp_path / "store", *checks, epochs=epochs)
    assert {name: evaluation.passed for name, evaluation in found.items()} == {
        "conservation": True,
        "unique_panes": True,
        "no_gaps": True,
        "late_ratio": True,
        "watermark_freshness": True,
    }
    assert "source trips: read 23 = passed 22 + malformed 1" in str(value(found["conservation"], "tidemark/balance"))


def test_conservation_names_the_epoch_and_the_source_that_lost_a_row(tmp_path: Path) -> None:
    epochs = (FakeEpoch(window_rows((1, 0, 0, 3))), FakeEpoch(window_rows((1, 1, 0, 3)), lost=1))
    found = check_run(make_job(tmp_path), tmp_path / "store", Conservation(), epochs=epochs)["conservation"]
    assert not found.passed
    assert found.severity == dg.AssetCheckSeverity.ERROR
    assert "epoch 1: source trips: read 11 = passed 10 + malformed 0" in str(found.description)
    assert value(found, "tidemark/unbalanced") == 2


@pytest.mark.parametrize("output", ["hourly", "rejected"])
def test_conservation_sees_rows_that_a_table_has_too_many(tmp_path: Path, output: str) -> None:
    job, store = make_job(tmp_path), tmp_path / "store"
    epoch = FakeEpoch(window_rows((1, 0, 0, 3)), rejected=2)
    assert check_run(job, store, Conservation(), epochs=(epoch,))["conservation"].passed
    path = str(tmp_path / "warehouse" / output)
    deltalake.write_deltalake(path, deltalake.DeltaTable(path).to_pyarrow_table(), mode="append")
    found = standalone(job, store, Conservation())["conservation"]
    assert not found.passed
    assert f"output {output}: committed" in str(found.description)
    assert standalone(job, store, Conservation(compare_tables=False))["conservation"].passed


def rewrite_newest_epoch(store: Path, change: Callable[[dict[str, OutputProgress]], dict[str, OutputProgress]]) -> None:
    """Change what the history and the status say of the outputs of a job's only epoch."""
    root = JobStore.open(str(store))
    status = read_status(root, "cabs")
    assert status is not None
    assert status.last is not None
    last = replace(status.last, outputs=change(dict(status.last.outputs)))
    (store / "cabs" / history_path(0)).unlink()
    HistoryWriter(root, "cabs").append(last)
    write_status(root, replace(status, last=last, totals=add_epoch(empty_totals(), last)))


def test_conservation_sees_late_rows_that_did_not_reach_their_output(tmp_path: Path) -> None:
    job, store = make_job(tmp_path), tmp_path / "store"
    check_run(job, store, epochs=(FakeEpoch(window_rows((1, 0, 0, 3)), late=4),))
    rewrite_newest_epoch(store, lambda outputs: {**outputs, "late": replace(outputs["late"], rows=3)})
    found = standalone(job, store, Conservation(compare_tables=False))["conservation"]
    assert not found.passed
    assert found.description == "epoch 0: late rows emitted 4 = in output late 3"


def test_a_side_output_that_was_added_later_balances(tmp_path: Path) -> None:
    job, store = make_job(tmp_path), tmp_path / "store"
    check_run(job, store, epochs=(FakeEpoch(window_rows((1, 0, 0, 3)), late=4),))
    rewrite_newest_epoch(store, lambda outputs: {name: output for name, output in outputs.items() if name != "late"})
    later = FakeEpoch(window_rows((1, 1, 0, 3)), late=1)
    assert check_run(job, store, Conservation(compare_tables=False), epochs=(later,))["conservation"].passed
    assert standalone(job, store, Conservation(compare_tables=False))["conservation"].passed


def test_conservation_does_not_count_rows_that_replace_others(tmp_path: Path) -> None:
    job, store = make_job(tmp_path, mode="upsert"), tmp_path / "store"
    newer = window_rows((2, 0, 1, 2))
    check_run(job, store, epochs=(FakeEpoch(window_rows((2, 0, 0, 1))), FakeEpoch(newer)))
    deltalake.write_deltalake(str(tmp_path / "warehouse" / "hourly"), newer, mode="overwrite")
    assert standalone(job, store, Conservation())["conservation"].passed


def test_a_pane_that_is_there_twice_is_shown(tmp_path: Path) -> None:
    epochs = (FakeEpoch(window_rows((1, 0, 0, 3), (1, 0, 1, 4), (2, 0, 0, 1))), FakeEpoch(window_rows((2, 0, 0, 1))))
    found = check_run(make_job(tmp_path), tmp_path / "store", UniquePanes(), epochs=epochs)["unique_panes"]
    assert not found.passed
    assert value(found, "tidemark/repeated") == 1
    assert "| 2 | 2024-03-04 00:00:00" in str(value(found, "tidemark/sample"))


@pytest.mark.parametrize(
    ("windows", "hours", "missing"),
    [
        (tm.sliding("3 hours", "1 hour"), (0, 1, 3), 1),
        (tm.sliding("6 hours", "2 hours"), (0, 2, 6), 1),
        (tm.cumulative("4 hours", "1 hour"), (0, 0, 8), 1),
        # Of 2024-03-31, which is from hour 647 to 670, Berlin has 23 hours.
        (tm.tumbling("1 day", zone="Europe/Berlin"), (623, 647, 670, 694), 0),
        (tm.tumbling("1 day", zone="Europe/Berlin"), (623, 670), 1),
        (tm.sliding("3 days", "1 day", zone="Europe/Berlin"), (647, 694), 1),
        (tm.cumulative("2 days", "1 hour", zone="Europe/Berlin"), (623, 670, 766), 1),
    ],
)
def test_gaps_are_between_the_starts_of_windows(tmp_path: Path, windows: WindowAssigner, hours: tuple[int, ...], missing: int) -> None:
    rows = window_rows(*((1, hour, pane, 1) for pane, hour in enumerate(hours)))
    found = check_run(make_job(tmp_path, windows=windows), tmp_path / "store", NoGaps(), epochs=(FakeEpoch(rows),))
    assert value(found["no_gaps"], "tidemark/missing_windows") == missing


def test_gaps_between_local_days_of_many_zones_are_whole_days(tmp_path: Path) -> None:
    job = make_job(tmp_path, windows=tm.tumbling("1 day", zone_by="CAST(zone AS STRING)"))
    epochs = (FakeEpoch(window_rows((1, 647, 0, 1), (1, 694, 0, 1), (2, 648, 0, 1), (2, 672, 0, 1), (3, 0, 0, 1), (3, 25, 0, 1))),)
    found = check_run(job, tmp_path / "store", NoGaps(every="1 day", by=("zone",)), epochs=epochs)
    assert value(found["no_gaps"], "tidemark/missing_windows") == 1
    with pytest.raises(DefinitionError, match=r"no fixed distance.*Fix: set NoGaps\(every="):
        check_run(job, tmp_path / "store", NoGaps(), epochs=epochs)


def test_a_table_that_is_upserted_has_each_of_its_keys_once(tmp_path: Path) -> None:
    epochs = (FakeEpoch(window_rows((1, 0, 0, 3), (2, 0, 0, 1))), FakeEpoch(window_rows((2, 0, 1, 1))))
    found = check_run(make_job(tmp_path, mode="upsert"), tmp_path / "store", UniquePanes(), epochs=epochs)["unique_panes"]
    assert not found.passed
    assert value(found, "tidemark/repeated") == 1


def test_gaps_are_found_over_all_rows_or_by_key(tmp_path: Path) -> None:
    rows = window_rows((1, 0, 0, 3), (1, 0, 1, 4), (2, 1, 0, 1), (1, 2, 0, 1), (2, 5, 0, 1))
    checks = (NoGaps(), NoGaps(by=("zone",), name="no_gaps_by_zone"))
    found = check_run(make_job(tmp_path), tmp_path / "store", *checks, epochs=(FakeEpoch(rows),))
    assert value(found["no_gaps"], "tidemark/missing_windows") == 2
    assert value(found["no_gaps_by_zone"], "tidemark/missing_windows") == 1 + 3
    assert not found["no_gaps"].passed


@pytest.mark.parametrize(
    ("late", "passed", "severity"),
    [
        (0, True, None),
        (10, True, None),
        (11, False, dg.AssetCheckSeverity.WARN),
        (101, False, dg.AssetCheckSeverity.WARN),
        (102, False, dg.AssetCheckSeverity.ERROR),
    ],
)
def test_late_ratio_warns_above_a_thousandth_and_fails_above_a_hundredth(
    tmp_path: Path,
    *,
    late: int,
    passed: bool,
    severity: dg.AssetCheckSeverity | None,
) -> None:
    epoch = FakeEpoch(window_rows((1, 0, 0, 3)), late=late, accepted=9_999 if late < 100 else 10_000)
    found = check_run(make_job(tmp_path), tmp_path / "store", LateRatio(), epochs=(epoch,))["late_ratio"]
    assert found.passed is passed
    assert severity is None or found.severity == severity
    assert value(found, "tidemark/late_rows") == late


@pytest.mark.parametrize(
    ("behind_minutes", "passed", "severity"),
    [
        (24, True, None),
        (25, False, dg.AssetCheckSeverity.WARN),
        (74, False, dg.AssetCheckSeverity.WARN),
        (75, False, dg.AssetCheckSeverity.ERROR),
    ],
)
def test_freshness_is_five_bounds_and_three_times_that(
    tmp_path: Path,
    *,
    behind_minutes: int,
    passed: bool,
    severity: dg.AssetCheckSeverity | None,
) -> None:
    epoch = FakeEpoch(window_rows((1, 0, 0, 3)), behind_ms=behind_minutes * 60_000, held_by="7")
    found = check_run(make_job(tmp_path), tmp_path / "store", WatermarkFreshness(), epochs=(epoch,))["watermark_freshness"]
    assert found.passed is passed
    assert severity is None or found.severity == severity
    assert "source 'trips'" in str(found.description)
    assert "split '7'" in str(found.description)


SUITE = {
    "name": "hourly",
    "expectations": [
        {"type": "expect_column_values_to_be_between", "kwargs": {"column": "trips", "min_value": 2}, "severity": "warning"},
        {"type": "expect_column_values_to_not_be_null", "kwargs": {"column": "zone"}, "meta": {"check": "zone is known"}},
        {"type": "expect_column_values_to_not_be_null", "kwargs": {"column": "nowhere"}},
        {"type": "expect_table_row_count_to_be_between", "kwargs": {"min_value": 3, "max_value": 3}},
    ],
}


def test_a_suite_becomes_a_check_per_expectation(tmp_path: Path) -> None:
    rows = window_rows((1, 0, 0, 1), (2, 0, 0, 5), (3, 0, 0, 1))
    found = check_run(make_job(tmp_path), tmp_path / "store", expectation_checks(SUITE, output="hourly"), epochs=(FakeEpoch(rows),))
    between = found["expect_column_values_to_be_between_trips"]
    assert not between.passed
    assert between.severity == dg.AssetCheckSeverity.WARN
    assert value(between, "great_expectations/unexpected_count") == 2
    assert value(between, "great_expectations/element_count") == 3
    assert str(value(between, "tidemark/sample")).count("2024-03-04") == 4
    assert found["zone_is_known"].passed
    missing = found["expect_column_values_to_not_be_null_nowhere"]
    assert not missing.passed
    assert missing.severity == dg.AssetCheckSeverity.ERROR
    assert "nowhere" in str(missing.description)
    assert found["expect_table_row_count_to_be_between"].passed


def test_a_suite_can_look_at_the_rows_of_the_run_alone(tmp_path: Path) -> None:
    job, store = make_job(tmp_path), tmp_path / "store"
    suite = {
        "expectations": [
            {"type": "expect_column_values_to_be_between", "kwargs": {"column": "trips", "min_value": 2}, "meta": {"check": "trips"}}
        ]
    }
    bad, good = FakeEpoch(window_rows((1, 0, 0, 1))), FakeEpoch(window_rows((1, 1, 0, 5)))
    assert not check_run(job, store, expectation_checks(suite, rows="run"), epochs=(bad,))["trips"].passed
    of_run = check_run(job, store, expectation_checks(suite, rows="run"), epochs=(good,))["trips"]
    assert of_run.passed
    assert value(of_run, "tidemark/rows_checked") == 1
    of_table = check_run(job, store, expectation_checks(suite), epochs=(good,))["trips"]
    assert not of_table.passed
    assert value(of_table, "tidemark/rows_checked") == 3


def test_the_rows_of_a_run_are_those_it_brought_whatever_was_merged_meanwhile(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    job, store, run = make_job(tmp_path), tmp_path / "store", FakeEngine.run
    kwargs = {"column": "trips", "min_value": 2}
    suite = {"expectations": [{"type": "expect_column_values_to_be_between", "kwargs": kwargs, "meta": {"check": "trips"}}]}

    def merging(engine: FakeEngine, *arguments: Any) -> FakeRun:
        done = run(engine, *arguments)
        deltalake.DeltaTable(str(tmp_path / "warehouse" / "hourly")).optimize.compact()
        return done

    check_run(job, store, epochs=(FakeEpoch(window_rows((1, 0, 0, 1))),))
    monkeypatch.setattr(FakeEngine, "run", merging)
    epochs = (FakeEpoch(window_rows((1, 1, 0, 5))), FakeEpoch(window_rows((1, 2, 0, 6), (2, 2, 0, 7))))
    found = check_run(job, store, expectation_checks(suite, rows="run"), epochs=epochs)["trips"]
    assert (found.passed, value(found, "tidemark/rows_checked")) == (True, 3)


def test_a_suite_is_read_from_a_file_and_severity_can_be_set(tmp_path: Path) -> None:
    path = tmp_path / "suite.json"
    path.write_text(json.dumps(SUITE))
    checks = expectation_checks(path, severity="warn", blocking=True)
    found = check_run(make_job(tmp_path), tmp_path / "store", checks, epochs=(FakeEpoch(window_rows((1, 0, 0, 1))),))
    assert {evaluation.severity for evaluation in found.values() if not evaluation.passed} == {dg.AssetCheckSeverity.WARN}
    assert all(evaluation.blocking for evaluation in found.values())


def test_a_table_too_big_for_memory_is_not_read(tmp_path: Path) -> None:
    rows = window_rows((1, 0, 0, 3), (2, 0, 0, 5))
    found = check_run(make_job(tmp_path), tmp_path / "store", expectation_checks(SUITE, max_rows=1), epochs=(FakeEpoch(rows),))
    assert {evaluation.passed for evaluation in found.values()} == {False}
    assert {evaluation.severity for evaluation in found.values()} == {dg.AssetCheckSeverity.WARN}
    assert "not checked: the table has 2 rows" in str(found["zone_is_known"].description)


def test_a_table_that_does_not_exist_yet_has_nothing_wrong(tmp_path: Path) -> None:
    empty = FakeEpoch(window_rows((1, 0, 0, 1)).slice(0, 0))
    found = check_run(
        make_job(tmp_path), tmp_path / "store", expectation_checks(SUITE), UniquePanes(), NoGaps(), Conservation(), epochs=(empty,)
    )
    assert {name for name, evaluation in found.items() if not evaluation.passed} == set()


def test_suites_that_are_none_are_refused(tmp_path: Path) -> None:
    with pytest.raises(DefinitionError, match=r"no expectations.*Fix:"):
        expectation_checks({"name": "empty", "expectations": []})
    with pytest.raises(DefinitionError, match=r"not an expectation.*Fix:"):
        expectation_checks({"expectations": [{"kwargs": {}}]})
    with pytest.raises(DefinitionError, match=r"nowhere\.json cannot be read.*Fix:"):
        expectation_checks(tmp_path / "nowhere.json")
    unknown = expectation_checks({"expectations": [{"type": "expect_miracles", "kwargs": {}}]})
    with pytest.raises(UserCodeError, match=r"expect_miracles.*Fix:"):
        check_run(make_job(tmp_path), tmp_path / "store", unknown, epochs=(FakeEpoch(window_rows((1, 0, 0, 1))),))


def test_checks_on_their_own_give_what_they_gave_in_the_run(tmp_path: Path) -> None:
    job, store = make_job(tmp_path), tmp_path / "store"
    checks = (Conservation(), UniquePanes(), LateRatio(), WatermarkFreshness(), expectation_checks(SUITE))
    in_run = check_run(job, store, *checks, epochs=(FakeEpoch(window_rows((1, 0, 0, 3), (2, 0, 0, 1)), late=3),))
    alone = standalone(job, store, *checks)
    assert {name: found.passed for name, found in alone.items()} == {name: found.passed for name, found in in_run.items()}
    assert not alone["late_ratio"].passed
    assert value(alone["late_ratio"], "tidemark/late_ratio") == pytest.approx(3 / 13)


def test_checks_of_a_job_that_never_ran_pass(tmp_path: Path) -> None:
    found = standalone(make_job(tmp_path), tmp_path / "store", Conservation(), UniquePanes(), LateRatio(), WatermarkFreshness())
    assert {evaluation.passed for evaluation in found.values()} == {True}


def test_checks_alone_are_made_without_running_the_job(tmp_path: Path) -> None:
    job, store = make_job(tmp_path), tmp_path / "store"

    @streaming_assets(job=job, checks=(Conservation(), UniquePanes()))
    def cabs(context: dg.AssetExecutionContext, tidemark: FakeTidemark) -> Iterator[StreamingEvent]:
        yield from tidemark.run(context=context)

    check_run(job, store, epochs=(FakeEpoch(window_rows((1, 0, 0, 3), (1, 0, 0, 3))),))
    runs = len(ENGINES[str(store)].runs)
    only = dg.AssetSelection.checks_for_assets(cabs)
    result = dg.materialize([cabs], selection=only, resources={"tidemark": fake_resource(store)})
    passed = {evaluation.check_name: evaluation.passed for evaluation in result.get_asset_check_evaluations()}
    assert passed == {"conservation": True, "unique_panes": False}
    assert not result.get_asset_materialization_events()
    assert len(ENGINES[str(store)].runs) == runs


def test_statistics_of_a_column_are_plain_numbers(tmp_path: Path) -> None:
    """Dagster stores no numbers of numpy, which pandas makes of a column."""
    suite = {
        "expectations": [
            {"type": f"expect_column_{what}_to_be_between", "kwargs": {"column": column, "min_value": 1}, "meta": {"check": what}}
            for what, column in (("mean", "fares"), ("max", "trips"))
        ]
    }
    rows = window_rows((1, 0, 0, 3))
    found = check_run(make_job(tmp_path), tmp_path / "store", expectation_checks(suite), epochs=(FakeEpoch(rows),))
    assert value(found["mean"], "great_expectations/observed_value") == 30.0
    assert value(found["max"], "great_expectations/observed_value") == 3
