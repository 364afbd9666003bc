"""Paths of the control plane's files, in ``control/`` of a job's folder; all paths are relative to the job's folder.

================================  ====================================================================
``control/specs/<n>.json``        the generations of the spec, each created once
``control/attempts/<n>.json``     the right to launch a driver, created once per attempt
``control/claims/<n>.json``       the process that runs an attempt, created once
``control/starts/<n>.json``       progress of the start of an attempt's driver, and the duration of its stages
``control/warnings/<n>.json``     warnings of an attempt's driver, while they last
``control/leases/<n>.json``       which reconciler acts on the job
``control/requests/<n>.json``     requests that no other record names, each created once
``control/upgrades/<n>.json``     the steps of upgrades, each created once before it is taken
``control/upgrade-leases/``       which process carries out the upgrade
``control/upgrade-checks/``       results of checks of the new code during an upgrade, by upgrade and check
``control/upgrade-trouble.json``  what blocks the next step of an upgrade
``control/autoscaler/<n>.json``    what the autoscaler measured and decided, each created once
``control/status.json``           what reconcilers last saw and are about to do
================================  ====================================================================
"""

from __future__ import annotations

from typing import Final

CONTROL: Final = "control"
SPECS: Final = "control/specs"
ATTEMPTS: Final = "control/attempts"
CLAIMS: Final = "control/claims"
STARTS: Final = "control/starts"
WARNINGS: Final = "control/warnings"
LEASES: Final = "control/leases"
REQUESTS: Final = "control/requests"
UPGRADES: Final = "control/upgrades"
UPGRADE_LEASES: Final = "control/upgrade-leases"
UPGRADE_CHECKS: Final = "control/upgrade-checks"
UPGRADE_BLOCKER: Final = "control/upgrade-trouble.json"
AUTOSCALER: Final = "control/autoscaler"
CONTROL_STATUS: Final = "control/status.json"

ALERT_LEASES: Final = "_alerts/leases"
"""At the store's root, not in a job's folder: which process evaluates the alert rules of which jobs, so that each alert is sent once."""

_DIGITS = 8


def numbered(folder: str, number: int) -> str:
    """Return the path of a numbered record.

    >>> numbered(SPECS, 7)
    'control/specs/00000007.json'
    """
    return f"{folder}/{number:0{_DIGITS}d}.json"


def number_in(folder: str, path: str) -> int | None:
    """Return the number of a record's path, None for other files.

    >>> number_in(SPECS, "control/specs/00000007.json"), number_in(LEASES, "control/specs/00000007.json")
    (7, None)
    """
    name = path.removeprefix(f"{folder}/").removesuffix(".json")
    return int(name) if name.isdecimal() and path == numbered(folder, int(name)) else None
