"""The pages on alerts and metrics show what runs."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.docs.test_snippets import CHECKOUT, execute, snippets
from tests.http_server import http_server


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty working folder."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_the_page_on_alerts_does_what_it_says(elsewhere: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert execute(snippets(CHECKOUT / "docs/how-to/alerts.md"), {}, capsys) == 1
    verdicts = [path.name.split("-")[1] for path in sorted((elsewhere / "jobs").rglob("*-*.json"))]
    assert verdicts == ["failed", "passed"]


def test_the_page_on_metrics_does_what_it_says(monkeypatch: pytest.MonkeyPatch) -> None:
    (snippet,) = snippets(CHECKOUT / "docs/reference/metrics.md")
    with http_server() as (url, seen):
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", url)
        space: dict[str, object] = {}
        exec(compile(snippet.code.replace("9464", "0"), snippet.place, "exec"), space)  # noqa: S102 - the project's own page
        for name in ("export", "server"):
            space[name].close()  # type: ignore[attr-defined]
    assert [path for path, _, _ in seen] == ["/v1/metrics"]
