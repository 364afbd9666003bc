"""A driver whose JVM is that of the tests: a process as any other, which has not to wait for a Java of its own.

As a program it takes the arguments of ``tidemark.control.driver``.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pytest
    from pyspark.sql import SparkSession

    from tidemark.control.launch.local_launcher import LocalLauncher
    from tidemark.control.launch.run_folder import RunFolder
    from tidemark.control.model.records import Attempt
    from tidemark.control.model.spec import SpecGeneration


def attach_drivers(patch: pytest.MonkeyPatch, launcher: type[LocalLauncher], jvm: Mapping[str, str], *, first: int = 1) -> None:
    """Have a launcher start the drivers of attempts from the first given one on with a JVM that is there."""
    command = launcher.command

    def attached(made: LocalLauncher, spec: SpecGeneration, attempt: Attempt, store_uri: str, files: RunFolder) -> Sequence[str]:
        whole = tuple(command(made, spec, attempt, store_uri, files))
        if attempt.number < first:
            return whole
        return (
            "/usr/bin/env",
            *(f"{name}={value}" for name, value in jvm.items()),
            sys.executable,
            __file__,
            *whole[whole.index("--store") :],
        )

    patch.setattr(launcher, "command", attached)


class AttachedStart:
    """Stands for the start of Spark."""

    def __init__(self, *_: object, **__: object) -> None:
        from tests.control.threads import outlasting
        from tests.crash.warm_jvm import attach

        self._session = outlasting(attach({}))

    def session(self) -> SparkSession:
        return self._session


def main(arguments: Sequence[str]) -> int:
    from unittest import mock

    from tidemark.control.driver import driver

    with mock.patch.object(driver, "SparkStart", AttachedStart):
        return driver.main(arguments)


if __name__ == "__main__":
    # For a script Python puts its folder first on the path.
    sys.path[0] = str(Path(__file__).parents[2])
    sys.exit(main(sys.argv[1:]))
