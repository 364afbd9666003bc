from __future__ import annotations

from pathlib import Path

import pytest

from tidemark.errors import DefinitionError
from tidemark.locations import Location


@pytest.mark.parametrize(
    ("text", "uri", "spark"),
    [
        ("/data/jobs", "file:///data/jobs", "file:///data/jobs"),
        ("file:///data/jobs/", "file:///data/jobs", "file:///data/jobs"),
        ("/data/two words", "file:///data/two%20words", "file:///data/two words"),
        ("s3://lake/a/b/", "s3://lake/a/b", "s3a://lake/a/b"),
        ("s3a://lake/a", "s3://lake/a", "s3a://lake/a"),
        ("s3://lake", "s3://lake", "s3a://lake"),
        ("s3://lake//a//b", "s3://lake/a/b", "s3a://lake/a/b"),
        ("s3://lake/a/./old/../b/.", "s3://lake/a/b", "s3a://lake/a/b"),
        ("s3://lake//", "s3://lake", "s3a://lake"),
        ("gs://lake/a", "gs://lake/a", "gs://lake/a"),
        ("abfss://box@acme.dfs.core.windows.net/a", "az://box/a", "abfss://box@acme.dfs.core.windows.net/a"),
    ],
)
def test_one_mapper_for_both_worlds(text: str, uri: str, spark: str) -> None:
    location = Location.parse(text)
    assert (location.uri, location.spark_uri) == (uri, spark)


@pytest.mark.parametrize(
    "text", ["/data/two words", "/data/50%20 é#", "s3a://lake/a b", "az://box/a", "abfss://box@acme.dfs.core.windows.net/a"]
)
def test_an_address_is_read_as_the_same_location(text: str) -> None:
    location = Location.parse(text)
    assert Location.parse(location.address) == location


def test_relative_paths_start_from_the_given_folder(tmp_path: Path) -> None:
    assert Location.parse("warehouse/../lake", relative_to=tmp_path).path == str(tmp_path / "lake")


def test_azure_takes_the_account_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    location = Location.parse("az://box/a")
    monkeypatch.delenv("AZURE_STORAGE_ACCOUNT_NAME", raising=False)
    with pytest.raises(DefinitionError, match="AZURE_STORAGE_ACCOUNT_NAME"):
        _ = location.spark_uri
    monkeypatch.setenv("AZURE_STORAGE_ACCOUNT_NAME", "acme")
    assert location.spark_uri == "abfss://box@acme.dfs.core.windows.net/a"


@pytest.mark.parametrize("path", ["", "/"])
def test_joined_with_nothing_is_itself(path: str) -> None:
    location = Location.parse("s3://lake/a")
    assert location.joined(path) == location
    assert Location.parse("s3://lake").joined("a/b").uri == "s3://lake/a/b"


@pytest.mark.parametrize(
    "text", ["", "  ", "hdfs://host/a", "s3://", "s3:///a", "/data/*", "s3://lake/{a,b}", "/data/[1]", "http://host/x"]
)
def test_unusable_locations_are_refused_with_a_fix(text: str) -> None:
    with pytest.raises(DefinitionError, match="Fix: "):
        Location.parse(text)


@pytest.mark.parametrize("text", ["s3://AKIA:hunter2@lake/a", "az://box/a?sig=hunter2", "gs://lake/a#hunter2"])
def test_credentials_are_refused_and_never_shown(text: str) -> None:
    with pytest.raises(DefinitionError) as caught:
        Location.parse(text)
    assert "hunter2" not in str(caught.value)
