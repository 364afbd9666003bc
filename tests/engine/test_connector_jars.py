"""The jars of connectors are downloaded once, checked, and given to sessions that start here."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest
from click.testing import CliRunner

from tests.http_server import http_server
from tidemark.cli.program.main import main
from tidemark.errors import DefinitionError, SetupError
from tidemark.spark.env import connector_jars
from tidemark.spark.env.connector_jars import CONNECTORS, Jar, connector_settings, install, installed

CONTENT = b"no jar at all"


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("TIDEMARK_CONNECTORS", str(tmp_path / "connectors"))
    jars = (Jar("org.tidemark", "small", "1.0", hashlib.sha256(CONTENT).hexdigest()),)
    monkeypatch.setattr(connector_jars, "CONNECTORS", {"small": jars, "other": (Jar("org.tidemark", "other", "2", "0" * 64),)})
    return tmp_path / "connectors"


def test_pinned_files_have_names_of_maven_and_checksums() -> None:
    jars = [jar for found in CONNECTORS.values() for jar in found]
    assert {len(bytes.fromhex(jar.sha256)) for jar in jars} == {32}
    kafka = CONNECTORS["kafka"][0]
    assert str(kafka) == "org.apache.spark:spark-sql-kafka-0-10_2.13:4.2.0"
    assert kafka.path == "org/apache/spark/spark-sql-kafka-0-10_2.13/4.2.0/spark-sql-kafka-0-10_2.13-4.2.0.jar"


def test_a_connector_is_downloaded_once(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with http_server(answer=CONTENT) as (address, asked):
        monkeypatch.setenv("TIDEMARK_MAVEN_REPOSITORY", f"{address}/maven2")
        assert installed("small") == ()
        assert connector_settings({}) == {}
        (place,) = install("small")
        assert (place, place.read_bytes()) == (folder / "small" / "small-1.0.jar", CONTENT)
        assert [path for path, _, _ in asked] == ["/maven2/org/tidemark/small/1.0/small-1.0.jar"]
        said: list[tuple[str, bool]] = []
        install("small", on_file=lambda jar, there: said.append((jar.file, there)))
        assert said == [("small-1.0.jar", True)]
        assert len(asked) == 1
    assert connector_settings({}) == {"spark.jars": str(place)}
    assert connector_settings({"spark.jars.packages": "a:b:1"}) == {}


def test_another_file_than_the_pinned_one_is_not_taken(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with http_server(answer=b"another one") as (address, _):
        monkeypatch.setenv("TIDEMARK_MAVEN_REPOSITORY", address)
        with pytest.raises(SetupError, match=r"has the SHA-256 .*, not the pinned"):
            install("small")
    assert [*folder.rglob("*.jar")] == []


def test_a_repository_that_lacks_it_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    with http_server(status=404) as (address, _):
        monkeypatch.setenv("TIDEMARK_MAVEN_REPOSITORY", address)
        with pytest.raises(SetupError, match=r"small-1\.0\.jar cannot be downloaded from .*TIDEMARK_MAVEN_REPOSITORY"):
            install("small")
    with pytest.raises(DefinitionError, match=r"no connector 'smal'.*small, other"):
        install("smal")


def test_the_command(monkeypatch: pytest.MonkeyPatch) -> None:
    with http_server(answer=CONTENT) as (address, _):
        monkeypatch.setenv("TIDEMARK_MAVEN_REPOSITORY", address)
        done = CliRunner().invoke(main, ["connectors", "install", "small"])
    assert done.exit_code == 0, done.output
    assert "downloading org.tidemark:small:1.0" in done.output
    assert "small: 1 jars in " in done.output
