"""Assets link to the page of their job."""

from __future__ import annotations

import sys
from pathlib import Path

import dagster as dg
import pytest

from tidemark.errors import DefinitionError
from tidemark.operations import build_job_definitions

CODE = """
import tidemark as tm

files = tm.files("/landing", format="json", schema="k STRING, t BIGINT")
rides = tm.source("rides", files, watermarks=tm.bounded_out_of_orderness("0 ms", timestamp="t"))
job = tm.Job("rides.eu", outputs={"all": tm.delta(rides, "/lake/all")})
"""


@pytest.fixture
def code(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    (tmp_path / "linked_rides.py").write_text(CODE)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "linked_rides", raising=False)
    return "linked_rides:job"


def links(definitions: dg.Definitions) -> dict[str, object]:
    """Return the links by asset."""
    specs = definitions.resolve_all_asset_specs()
    assert len(specs) >= 2
    return {spec.key.to_user_string(): spec.metadata["tidemark/page"].value for spec in specs if "tidemark/page" in spec.metadata}


@pytest.mark.parametrize("continuous", [True, False])
@pytest.mark.parametrize("address", ["https://jobs.example.com", "https://jobs.example.com/"])
def test_outputs_link_to_the_page_of_their_job(code: str, tmp_path: Path, address: str, *, continuous: bool) -> None:
    made = build_job_definitions(code, store=str(tmp_path / "store"), continuous=continuous, ui_url=address)
    assert links(made) == {"rides.eu/all": "https://jobs.example.com/#rides.eu"}


@pytest.mark.parametrize("continuous", [True, False])
def test_without_an_address_there_is_no_link(code: str, tmp_path: Path, *, continuous: bool) -> None:
    assert links(build_job_definitions(code, store=str(tmp_path / "store"), continuous=continuous)) == {}


@pytest.mark.parametrize(
    "address", ["jobs.example.com", "ftp://jobs", "https://me:secret@jobs", "https://jobs?token=x", "https://jobs/#x", ""]
)
def test_what_is_no_address_is_refused(tmp_path: Path, address: str) -> None:
    with pytest.raises(DefinitionError, match="ui_url is not the plain address") as caught:
        build_job_definitions(store=str(tmp_path), ui_url=address)
    assert "secret" not in str(caught.value)
