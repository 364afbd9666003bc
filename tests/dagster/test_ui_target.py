"""What `make ui` and `make demo` keep off the console: a trace of a port that is taken, and the steps of runs."""

from __future__ import annotations

import shutil
import socket
import subprocess
import sys
from pathlib import Path

import dagster as dg
import pytest

CHECKOUT = Path(__file__).resolve().parents[2]


def test_a_port_that_is_taken_is_said_in_one_line() -> None:
    recipe = (CHECKOUT / "Makefile").read_text().partition("\nui: ")[2].partition("\n\n")[0]
    assert recipe.index("scripts/free_port.py $(UI_PORT)") < recipe.index("dagster dev")
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        listening.listen()
        port = listening.getsockname()[1]
        script = [sys.executable, str(CHECKOUT / "scripts" / "free_port.py"), str(port)]
        done = subprocess.run(script, capture_output=True, text=True, check=False)
        assert (done.returncode, done.stdout) == (1, "")
        other = port + 1 if port < 65_535 else port - 1
        assert done.stderr == (
            f"ui: port {port} is not free: another program has it. Fix: end that, or choose another port: make ui UI_PORT={other}\n"
        )
    assert subprocess.run(script, capture_output=True, check=False).returncode == 0


def test_a_console_shows_what_a_run_says_and_not_its_steps(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    @dg.asset
    def trips() -> None:
        dg.get_dagster_logger().info("epoch 7: in 9")

    shutil.copy(CHECKOUT / "examples" / "dagster.yaml", tmp_path)
    with dg.DagsterInstance.from_config(str(tmp_path)) as instance:
        assert dg.materialize([trips], instance=instance).success
        # Dagster's own pages have the steps all the same.
        assert instance.get_latest_materialization_event(dg.AssetKey("trips")) is not None
    said = "".join(capfd.readouterr())
    assert "epoch 7: in 9" in said
    assert "DEBUG" not in said
