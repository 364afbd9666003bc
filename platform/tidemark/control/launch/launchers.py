"""The launchers of this machine, by the names that specs use."""

from __future__ import annotations

from collections.abc import Mapping

from tidemark.control.model.launcher import Launcher


def launchers_here() -> Mapping[str, Launcher]:
    """Return the launchers by name; their modules are imported on this call."""
    from tidemark.control.launch.local_launcher import LocalLauncher
    from tidemark.control.launch.spark_submit import SparkSubmitLauncher

    return {"local": LocalLauncher(), "spark-submit": SparkSubmitLauncher()}


def any_driver_ended(launchers: Mapping[str, Launcher]) -> bool:
    """Return whether a driver on this machine has ended since the last probe."""
    from tidemark.control.launch.local_launcher import LocalLauncher

    return any(launcher.any_driver_ended() for launcher in launchers.values() if isinstance(launcher, LocalLauncher))
