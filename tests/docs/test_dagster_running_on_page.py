"""The code location of the page on jobs that run on loads, and shows what does not."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from tests.docs.test_snippets import CHECKOUT, snippets, write_first_job

PAGE = CHECKOUT / "docs/how-to/dagster-running-on.md"
pytestmark = [
    pytest.mark.dagster,
    pytest.mark.filterwarnings(r"ignore:The `__fields__` attribute is deprecated"),  # Dagster's, over pydantic
]


@pytest.fixture
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """An empty working folder that modules are imported from."""
    import sys

    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    yield tmp_path
    sys.modules.pop("first_job", None)


def test_the_code_locations_of_the_page_load(elsewhere: Path) -> None:
    import dagster as dg

    write_first_job(elsewhere)
    found = []
    for snippet in snippets(PAGE):
        space: dict[str, object] = {"__name__": "definitions"}
        exec(compile(snippet.code, snippet.place, "exec"), space)  # noqa: S102 - the project's own page
        (defs,) = (value for value in space.values() if isinstance(value, dg.Definitions))
        dg.Definitions.validate_loadable(defs)
        found.append(defs)
    one, defs, many = found
    assert {"fares_operate", "fares_savepoint"} <= {job.name for job in one.resolve_all_job_defs()}
    operate = defs.resolve_job_def("fares_operate")
    shown = PAGE.read_text(encoding="utf-8").split("```yaml\n", 1)[1].split("```", 1)[0]
    assert dg.validate_run_config(operate, yaml.safe_load(shown))["ops"]["operate_fares"]["config"]["do"]["stop"]["how"] == "drain"
    keys = {spec.key.to_user_string() for spec in many.resolve_all_asset_specs()}
    assert {"fares/hourly", "broken/not_written_yet_job"} <= keys
