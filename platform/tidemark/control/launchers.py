"""What can start drivers from this machine, by the names that specs have."""

from __future__ import annotations

from collections.abc import Mapping

from tidemark.control.launcher import Launcher


def launchers_here() -> Mapping[str, Launcher]:
    """Return the launchers; what they stand on is imported now."""
    from tidemark.control.local_launcher import LocalLauncher
    from tidemark.control.spark_submit import SparkSubmitLauncher

    return {"local": LocalLauncher(), "spark-submit": SparkSubmitLauncher()}
