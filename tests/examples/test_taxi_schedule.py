"""The passes of an epoch of the taxi job: the docs show what the command prints, line by line."""

from __future__ import annotations

from click.testing import CliRunner

from tests.architecture.sources import CHECKOUT
from tidemark.cli.program.main import main

COMMAND = ("graph", "examples.taxi.job:job", "--schedule")


def test_the_docs_show_the_passes_that_the_command_prints() -> None:
    page = (CHECKOUT / "docs/how-to/running.md").read_text(encoding="utf-8")
    _, _, after = page.partition(f"$ tidemark {' '.join(COMMAND)}\n")
    shown, fence, _ = after.partition("```\n")
    assert fence
    assert " 12 compact hourly-tips: " in shown
    done = CliRunner().invoke(main, COMMAND)
    assert (done.exit_code, done.output) == (0, shown)


def test_a_schedule_is_text() -> None:
    done = CliRunner().invoke(main, [*COMMAND, "--format", "mermaid"])
    assert done.exit_code == 1
    assert "a schedule has no --format mermaid" in str(done.output) + str(done.exception)
