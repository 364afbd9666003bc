"""What assets are called and say of themselves: sources that several jobs read, and descriptions from the job's code."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import dagster as dg
import pytest

import tidemark as tm
from tests.dagster.fake_engine import make_job
from tidemark.assets import StreamData, TidemarkTranslator, build_output_asset_specs, build_source_asset_specs
from tidemark.assets.report.watermark_chart import ChartPoint, svg
from tidemark.graph.api.streams import Stream

pytestmark = pytest.mark.dagster


def test_a_source_of_several_jobs_is_in_the_group_of_none(tmp_path: Path) -> None:
    one, two = make_job(tmp_path, "one"), make_job(tmp_path, "two")
    (alone,), (shared,) = build_source_asset_specs(one), build_source_asset_specs(one, two)
    assert (alone.group_name, shared.group_name) == ("one", "sources")
    assert shared.description == "Source `trips` of the streaming jobs `one` and `two`; it is written outside Dagster."

    owned = (
        replace(one, owners=("team:rides", "team:data"), tags={"tier": "gold", "area": "rides"}),
        replace(two, owners=("team:data", "team:fares"), tags={"tier": "gold", "area": "fares"}),
    )
    (shared,) = build_source_asset_specs(*owned)
    assert list(shared.owners) == ["team:rides", "team:data", "team:fares"]
    assert {key: value for key, value in shared.tags.items() if not key.startswith("dagster/")} == {"tier": "gold"}
    assert shared.kinds == {"json"}

    class Ours(TidemarkTranslator):
        def get_asset_spec(self, data: StreamData) -> dg.AssetSpec:
            spec = super().get_asset_spec(data)
            return spec.replace_attributes(group_name="landing" if data.kind == "source" else spec.group_name, description="Ours.")

    (ours,) = build_source_asset_specs(one, two, translator=Ours())
    assert (ours.group_name, ours.description) == ("landing", "Ours.")


def test_what_the_job_says_of_an_output_and_its_columns_is_on_its_page(tmp_path: Path) -> None:
    plain = make_job(tmp_path)
    output = tm.delta(
        Stream(plain.outputs["hourly"].node),
        str(tmp_path / "hourly"),
        description="Fares by the hour.",
        columns={"trips": "How many fares."},
    )
    job = tm.Job("cabs", outputs={"hourly": output}, store=str(tmp_path))
    for spec in build_output_asset_specs(job):
        assert str(spec.description).startswith("Fares by the hour.\n\nOne row for each `zone`, window and pane")
        texts = {column.name: column.description for column in spec.metadata["dagster/column_schema"].columns}
        assert texts["trips"] == "How many fares."
        assert texts["zone"] == "Key of the window.", "what is not described is described by the graph"


def test_outputs_and_their_columns_say_what_they_hold(tmp_path: Path) -> None:
    job = make_job(tmp_path, store=str(tmp_path))
    specs = {spec.key.path[-1]: spec for spec in (*build_output_asset_specs(job), *build_source_asset_specs(job))}

    def columns(name: str) -> dict[str, str | None]:
        return {column.name: column.description for column in specs[name].metadata["dagster/column_schema"].columns}

    assert str(specs["hourly"].description).startswith("One row for each `zone`, window and pane (tumbling 1h, allowed lateness 10m).")
    assert str(specs["late"].description).startswith("Late rows: their window had expired")
    assert columns("hourly") == {
        "zone": "Key of the window.",
        "window_start": "Start of the window, inclusive.",
        "window_end": "End of the window, exclusive.",
        "trips": "`count()` over the window.",
        "fares": "`sum(fare)` over the window.",
        "pane_timing": "EARLY, ON_TIME or LATE: when the result was made.",
        "pane_index": "Number of the result of this key and window, from 0; the greatest is the newest.",
    }
    assert columns("rejected")["at"] == "Event time, as read from source `trips`."
    assert columns("trips") == {"zone": None, "fare": None, "at": "Event time."}
    assert all(columns("malformed").values())


def test_the_picture_stays_small_and_inside_its_frame() -> None:
    text = svg([ChartPoint(epoch, 10**12 + epoch, 10**12 + 2 * epoch, epoch % 3, 5 * epoch, epoch) for epoch in range(120)])
    assert len(text) < 30_000
    lines = [re.findall(r"([\d.]+),([\d.]+)", line) for line in re.findall(r'points="([^"]*)"', text)]
    assert [len(line) for line in lines] == [120, 120, 120]
    for line, top, bottom in zip(lines, (34, 34, 220), (190, 190, 300), strict=True):
        assert all(190 <= float(x) <= 950 and top <= float(y) <= bottom for x, y in line)
    bars = re.findall(r"M([\d.]+) 410V([\d.]+)", text)
    assert len(bars) == 119
    assert all(190 <= float(x) <= 950 and 330 <= float(y) <= 410 for x, y in bars)
    assert all(440 <= float(y) <= 509 for y in re.findall(r'class="late" x="[\d.]+" y="([\d.]+)"', text))
