"""What can start drivers from this machine, by the names that specs have."""

from __future__ import annotations

from collections.abc import Mapping

from tidemark.control.model.launcher import Launcher


def launchers_here() -> Mapping[str, Launcher]:
    """Return the launchers; what they stand on is imported now."""
    from tidemark.control.launch.local_launcher import LocalLauncher
    from tidemark.control.launch.spark_submit import SparkSubmitLauncher

    return {"local": LocalLauncher(), "spark-submit": SparkSubmitLauncher()}


def any_driver_ended(launchers: Mapping[str, Launcher]) -> bool:
    """Say whether a driver on this machine has ended since it was last looked at."""
    from tidemark.control.launch.local_launcher import LocalLauncher

    return any(launcher.any_driver_ended() for launcher in launchers.values() if isinstance(launcher, LocalLauncher))
