"""An asset for a job whose code cannot be loaded, with a check that fails."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import dagster as dg

from tidemark.assets.streams.translator import group_of
from tidemark.assets.values.markdown import as_plain
from tidemark.control import load_job
from tidemark.errors import TidemarkError
from tidemark.state import redacted

BROKEN: Final = "broken"
"""First part of the key of the asset of a job whose code cannot be loaded; also its group."""

CODE_CHECK: Final = "code_loads"


def broken_spec(code: str, error: str, *, reason: str = "cannot be loaded") -> dg.AssetSpec:
    """Return the asset of a code that cannot be loaded.

    Args:
        code: ``module:job``.
        error: why it cannot be loaded, with the fix.
        reason: the same in two or three words.
    """
    return dg.AssetSpec(
        key=_key(code),
        description=f"The streaming job `{code}` {reason}, so its assets are missing. {as_plain(error)}",
        group_name=BROKEN,
        metadata={"tidemark/code": code, "tidemark/error": error},
        kinds={"tidemark"},
    )


def broken_check(code: str, *, fix: str = "reload the code location to get its assets") -> dg.AssetChecksDefinition:
    """Return the check of that asset, which tries to load the code again, and says what is to be done when it loads."""

    def loads() -> dg.AssetCheckResult:
        try:
            job = load_job(code)
        except TidemarkError as error:
            return dg.AssetCheckResult(passed=False, description=redacted(str(error)))
        return dg.AssetCheckResult(passed=True, description=f"job {job.name!r} loads now; {fix}")

    decorate = dg.asset_check(asset=_key(code), name=CODE_CHECK, description=f"The code of `{code}` can be loaded.")
    loads.__name__ = f"{group_of(code)}_{CODE_CHECK}"
    return decorate(loads)


def code_evaluations(instance: dg.DagsterInstance, broken: Mapping[str, str]) -> list[dg.AssetCheckEvaluation]:
    """Return failed evaluations of these checks that were never executed, for a sensor to report.

    Args:
        instance: the Dagster instance.
        broken: codes with the error of each.
    """
    keys = {dg.AssetCheckKey(_key(code), CODE_CHECK): error for code, error in broken.items()}
    known = instance.event_log_storage.get_latest_asset_check_execution_by_key(list(keys)) if keys else {}
    return [
        dg.AssetCheckEvaluation(asset_key=key.asset_key, check_name=key.name, passed=False, description=as_plain(error), metadata={})
        for key, error in keys.items()
        if key not in known
    ]


def _key(code: str) -> dg.AssetKey:
    return dg.AssetKey([BROKEN, group_of(code)])
