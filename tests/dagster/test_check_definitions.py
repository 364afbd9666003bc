"""What checks refuse when they are defined: stores, columns and outputs that they cannot look at."""

from __future__ import annotations

from pathlib import Path

import dagster as dg
import pytest

import tidemark as tm
from tests.dagster.fake_engine import make_job
from tidemark.assets import Conservation, NoGaps, UniquePanes, build_asset_checks, expectation_checks
from tidemark.errors import DefinitionError, SinkError
from tidemark.graph.model.nodes import MemorySpec

pytestmark = pytest.mark.dagster


def test_checks_say_which_variable_of_the_store_is_not_set(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TIDEMARK_TEST_UNSET", raising=False)
    job = make_job(tmp_path)
    checks = build_asset_checks(job, [Conservation()], store=dg.EnvVar("TIDEMARK_TEST_UNSET"))
    defs = dg.Definitions(assets=[dg.AssetSpec(["cabs", name]) for name in job.outputs], asset_checks=checks)
    with pytest.raises(DefinitionError, match="set TIDEMARK_TEST_UNSET"):
        defs.resolve_implicit_global_asset_job_def().execute_in_process()


def test_checks_of_columns_that_an_output_lacks_are_refused(tmp_path: Path) -> None:
    node = tm.Stream(make_job(tmp_path).outputs["hourly"].node).select("zone", "trips", "window_start").node
    job = tm.Job("cabs", outputs={"hourly": tm.Output(node=node, sink=make_job(tmp_path).outputs["hourly"].sink)})
    with pytest.raises(DefinitionError, match=r"'hourly' has no window_end, pane_index, which UniquePanes needs.*Fix:"):
        build_asset_checks(job, [UniquePanes()], store=str(tmp_path))
    with pytest.raises(DefinitionError, match=r"'hourly' has no taxi, which NoGaps needs.*Fix:"):
        build_asset_checks(job, [NoGaps(by=("taxi",))], store=str(tmp_path))
    build_asset_checks(job, [UniquePanes(columns=("zone", "window_start")), NoGaps(by=("zone",))], store=str(tmp_path))


def test_checks_of_outputs_that_keep_no_table_are_refused(tmp_path: Path) -> None:
    hourly = make_job(tmp_path).outputs["hourly"]
    job = tm.Job("cabs", outputs={"hourly": tm.Output(node=hourly.node, sink=MemorySpec("rows"))})
    for check in (
        UniquePanes(),
        NoGaps(),
        expectation_checks({"expectations": [{"type": "expect_column_to_exist", "kwargs": {"column": "zone"}}]}),
    ):
        with pytest.raises(SinkError, match=r"MemorySpec keeps no table.*'cabs'.*Fix:"):
            build_asset_checks(job, [check], store=str(tmp_path))


def test_rows_of_a_function_are_told_apart_by_columns_that_somebody_names(tmp_path: Path) -> None:
    trips = make_job(tmp_path).sources["trips"]
    windows = tm.source("trips", trips.spec, watermarks=trips.watermarks).key_by("zone").window(tm.tumbling("1 hour"))
    made = windows.process(lambda _rows, _context: [{"n": 1}, {"n": 2}], returns="n INT").uid("made")
    job = tm.Job("cabs", outputs={"made": tm.delta(made, str(tmp_path / "made"))})
    with pytest.raises(DefinitionError, match=r"several rows per pane.*Fix: pass UniquePanes the columns"):
        build_asset_checks(job, [UniquePanes()], store=str(tmp_path))
    build_asset_checks(job, [UniquePanes(columns=("zone", "window_start", "n"))], store=str(tmp_path))
