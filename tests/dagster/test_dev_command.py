"""A code server sees that the `dagster dev` that started it was killed."""

from __future__ import annotations

import os
import subprocess
import sys

SERVER = """
import sys
from tidemark.sensors.health.dev_command import DevCommand
command = DevCommand()
for _ in sys.stdin:
    print(command.has_ended, flush=True)
"""
DEV = f"""
import os, subprocess, sys
os.environ["DAGSTER_IS_DEV_CLI"] = "1"
proxy = "import subprocess, sys; subprocess.run([sys.executable, '-c', sys.argv[1]])"
subprocess.run([sys.executable, "-c", proxy, {SERVER!r}])
"""


def test_the_end_of_the_command_is_seen_before_that_of_its_servers() -> None:
    kept = {name: value for name, value in os.environ.items() if name != "DAGSTER_IS_DEV_CLI"}
    dev = subprocess.Popen([sys.executable, "-c", DEV], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1, env=kept)
    assert dev.stdin is not None
    assert dev.stdout is not None
    with dev.stdin, dev.stdout:
        dev.stdin.write("look\n")
        assert dev.stdout.readline() == "False\n"
        dev.kill()
        dev.wait()
        dev.stdin.write("look\n")
        assert dev.stdout.readline() == "True\n"


def test_a_process_of_a_deployment_has_no_such_command() -> None:
    program = SERVER.replace("for _ in sys.stdin:", "if True:")
    kept = {name: value for name, value in os.environ.items() if name != "DAGSTER_IS_DEV_CLI"}
    done = subprocess.run([sys.executable, "-c", program], env=kept, capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"
