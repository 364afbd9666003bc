"""Folders of a job that lie within one another."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

import tidemark as tm
from tidemark.cli.program.main import main
from tidemark.errors import DefinitionError


def job(source: str, *outputs: str, store: str | None = None, options: dict[str, str] | None = None) -> tm.Job:
    files = tm.files(source, format="json", schema="k STRING, t BIGINT", options=options)
    stream = tm.source("rides", files, watermarks=tm.ascending(timestamp="t"))
    sinks = {f"o{number}": tm.delta(stream.filter(f"t > {number}"), path) for number, path in enumerate(outputs)}
    return tm.Job("j", outputs=sinks, store=store)


@pytest.mark.parametrize(
    ("source", "outputs", "store", "what"),
    [
        ("/d/in", ["/d/in"], None, "output 'o0', /d/in, is that of source 'rides', so that what one writes is read"),
        ("/d/in", ["/d/in/x=1/y=2"], None, "output 'o0', /d/in/x=1/y=2, is within that of source 'rides', /d/in, which would read"),
        ("/d/in", ["/d"], None, "source 'rides', /d/in, is within that of output 'o0', /d, which would delete"),
        ("/d/in", ["/d/o", "/d/o/b"], None, "output 'o1', /d/o/b, is within that of output 'o0'"),
        ("/d/in", ["/d/o"], "/d/o/s", "the store, /d/o/s, is within that of output 'o0'"),
        ("/d/in", ["/d/o"], "/d/in/", "the store, /d/in, is that of source 'rides'"),
        ("s3://lake/in", ["s3://lake"], None, "source 'rides', s3://lake/in, is within that of output 'o0'"),
        ("/d", ["/"], None, "source 'rides', /d, is within that of output 'o0', /"),
    ],
)
def test_a_folder_within_another(source: str, outputs: list[str], store: str | None, what: str) -> None:
    with pytest.raises(DefinitionError) as caught:
        job(source, *outputs, store=store)
    assert what in caught.value.what
    assert "a folder of its own" in caught.value.fix
    assert (caught.value.place or "").startswith(__file__)


def test_a_folder_by_a_symbolic_link(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "in")
    with pytest.raises(DefinitionError, match=r"output 'o0'.*, is that of source 'rides'"):
        job(f"{tmp_path}/in", f"{tmp_path}/link")
    with pytest.raises(DefinitionError, match="outputs 'o0' and 'o1' both write to one place"):
        job("/d/in", f"{tmp_path}/in/o", f"{tmp_path}/link/o")


def test_the_table_that_a_source_reads() -> None:
    stream = tm.source("fares", tm.delta_source("/d/t", schema="k STRING, t BIGINT"), watermarks=tm.ascending(timestamp="t"))
    with pytest.raises(DefinitionError, match="output 'o', /d/t, is that of source 'fares'"):
        tm.Job("j", outputs={"o": tm.delta(stream, "/d/t")})
    with pytest.raises(DefinitionError, match="output 'o', /d/t/o, is within that of source 'fares', /d/t, whose VACUUM would delete"):
        tm.Job("j", outputs={"o": tm.delta(stream, "/d/t/o")})


def test_a_source_that_reads_all_below_its_folder() -> None:
    with pytest.raises(DefinitionError, match="is within that of source 'rides', /d/in, which would read its files"):
        job("/d/in", "/d/in/out", options={"recursiveFileLookup": "true"})


def test_folders_that_nobody_else_reads() -> None:
    job("/d/in", "/d/out", "/d/out2", store="/d/store")
    job("/d/in", "/d/in/_out", "/d/in/other", store="/d/in/store")
    job("/d/in*", "/d/in/out")
    job("/d/in", "/d/in/out", options={"pathGlobFilter": "*.json"})
    job("s3://lake/in", "s3://lake/inner", "s3://other/in/o", "gs://lake/in/o")
    job("/d/in", "/d/s/out", store="/d/s")


def test_a_store_that_is_given_to_the_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "in").mkdir()
    declared = job(f"{tmp_path}/in", f"{tmp_path}/out", store=f"{tmp_path}/store")
    for given, what in (("in/day=1", "is within that of source 'rides'"), ("in", "is that of source 'rides'"), ("out/s", "of output 'o0'")):
        with pytest.raises(DefinitionError, match=what) as caught:
            tm.run(declared, store=f"{tmp_path}/{given}")
        assert "the folder of the store" in caught.value.what
        assert (caught.value.job, (caught.value.place or "").split(":")[0]) == ("j", __file__)
    monkeypatch.setenv("TIDEMARK_STORE", f"{tmp_path}/in/day=1")
    with pytest.raises(DefinitionError, match="is within that of source 'rides'"):
        tm.run(job(f"{tmp_path}/in", f"{tmp_path}/out"))
    # Nothing was made in the folders.
    assert [path.name for path in tmp_path.rglob("*")] == ["in"]


def test_a_store_that_is_given_to_the_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "in").mkdir()
    code = f"""
import tidemark as tm
files = tm.files("{tmp_path}/in", format="json", schema="k STRING, t BIGINT")
stream = tm.source("rides", files, watermarks=tm.ascending(timestamp="t"))
job = tm.Job("j", outputs={{"o": tm.delta(stream, "{tmp_path}/out")}})
"""
    (tmp_path / "stored_in_source.py").write_text(code)
    monkeypatch.syspath_prepend(str(tmp_path))
    done = CliRunner().invoke(main, ["run", "stored_in_source:job", "--store", f"{tmp_path}/in/day=1"])
    assert done.exit_code != 0
    assert f"the folder of the store, {tmp_path}/in/day=1, is within that of source 'rides'" in " ".join(done.stderr.split())
    assert not list((tmp_path / "in").iterdir())
