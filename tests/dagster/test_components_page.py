"""The page on Components: its YAML loads, and is what the scaffolders write."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path

import dagster as dg
import pytest
import yaml
from dagster.components.testing.utils import create_defs_folder_sandbox

from tests.dagster.sandboxes import MARKS
from tests.dagster.test_dg_project import JOB
from tests.dagster.web_server import CHECKOUT
from tidemark.components import TidemarkJobComponent, TidemarkStreamComponent

pytestmark = MARKS

PAGE = (CHECKOUT / "docs/how-to/components.md").read_text(encoding="utf-8")
SCAFFOLDED, ALL_FIELDS, SUITE, STREAM, WITHOUT_END = re.findall(r"```yaml\n(.*?)```", PAGE, re.DOTALL)


def test_the_page_shows_what_the_scaffolders_write() -> None:
    with create_defs_folder_sandbox() as sandbox:
        params = {"job": "my_project.job:job", "store": "jobs", "continuous": False}
        job = sandbox.scaffold_component(component_cls=TidemarkJobComponent, defs_path="fares", scaffold_params=params)
        stream = sandbox.scaffold_component(component_cls=TidemarkStreamComponent, defs_path="rides")
        for path, shown in ((job, SCAFFOLDED), (stream, STREAM)):
            assert yaml.safe_load((path / "defs.yaml").read_text())["attributes"] == yaml.safe_load(shown)["attributes"]


def test_all_fields_of_the_page_load(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "my_project").mkdir()
    (tmp_path / "my_project" / "job.py").write_text(JOB)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("TIDEMARK_STORE", str(tmp_path / "store"))
    with create_defs_folder_sandbox() as sandbox:
        path = sandbox.scaffold_component(
            component_cls=TidemarkJobComponent, defs_path="fares", scaffold_params={"job": "my_project.job:job"}
        )
        document = yaml.safe_load(ALL_FIELDS)
        document["attributes"]["checks"] += [*yaml.safe_load(SUITE)["checks"], "{{ suite }}"]
        (path / "defs.yaml").write_text(yaml.safe_dump({**document, "template_vars_module": ".template_vars"}))
        (path / "template_vars.py").write_text(
            "import dagster as dg\n"
            "from tidemark.assets import expectation_checks\n"
            "@dg.template_var\n"
            "def suite():\n"
            "    not_null = {'type': 'expect_column_values_to_not_be_null', 'kwargs': {'column': 'fares'}}\n"
            "    return expectation_checks({'name': 'by_zone', 'expectations': [not_null]}, output='by_zone')\n"
        )
        with sandbox.load_component_and_build_defs(path) as (component, _):
            assert isinstance(component, TidemarkJobComponent)
            asyncio.run(component.refresh_state(sandbox.project_root))
        with sandbox.load_component_and_build_defs(path) as (_, definitions):
            specs = {spec.key.to_user_string(): spec for spec in definitions.resolve_all_asset_specs()}
            assert specs.keys() == {"lake/rides", "lake/fares/by_zone"}
            assert isinstance(specs["lake/fares/by_zone"].partitions_def, dg.HourlyPartitionsDefinition)
            checks = {key.name for check in definitions.asset_checks or () for key in check.check_keys}
            assert {"late_ratio", "unique_panes", "state_fits", "job_runs"} < checks
            suites = {check for check in checks if check.startswith(("expect_", "fares_"))}
            assert suites == {
                "expect_column_values_to_not_be_null_zone",
                "fares_are_positive",
                "expect_column_values_to_not_be_null_fares",
            }


def test_the_job_without_end_of_the_page_loads() -> None:
    with create_defs_folder_sandbox() as sandbox:
        path = sandbox.scaffold_component(component_cls=TidemarkStreamComponent, defs_path="rides", scaffold_params={"continuous": True})
        document = yaml.safe_load((path / "defs.yaml").read_text())
        document["attributes"] |= yaml.safe_load(WITHOUT_END)
        (path / "defs.yaml").write_text(yaml.safe_dump(document))
        with sandbox.load_component_and_build_defs(path) as (component, definitions):
            assert isinstance(component, TidemarkStreamComponent)
            assert component.continuous
            assert "rides_operate" in {job.name for job in definitions.jobs or ()}


def test_the_page_names_every_field() -> None:
    for component in (TidemarkJobComponent, TidemarkStreamComponent):
        missing = [name for name in component.model_fields if f"`{name}`" not in PAGE and f"{name}:" not in PAGE]
        assert missing == []
