"""Runs a Great Expectations suite on rows in memory; the only file that imports great_expectations, on first use."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tidemark.errors import SetupError, UserCodeError

if TYPE_CHECKING:
    import pyarrow as pa
    from great_expectations.core import ExpectationValidationResult

SAMPLE = 20
_MARK = "tidemark_check"


@dataclass(frozen=True)
class ExpectationOutcome:
    """The result of one expectation: its statistics, sample rows, and the message of an exception."""

    name: str
    success: bool
    severity: str
    statistics: Mapping[str, int | float]
    sample: tuple[Mapping[str, object], ...] = ()
    exception: str | None = None


def validate_rows(rows: pa.Table, expectations: Mapping[str, Mapping[str, object]], *, job: str | None = None) -> list[ExpectationOutcome]:
    """Validate rows against expectations.

    Args:
        rows: the rows, in memory.
        expectations: configurations (``type``, ``kwargs``, ``meta``, ``severity``) by name.
        job: the job's name, for errors.

    Returns:
        One outcome per expectation, in the given order.

    Raises:
        SetupError: great-expectations is not installed.
        UserCodeError: Great Expectations does not know an expectation, or rejects its arguments.
    """
    # Great Expectations reports its use over the network by default; checks must not depend on a network.
    os.environ.setdefault("GX_ANALYTICS_ENABLED", "false")
    try:
        import great_expectations as gx
    except ImportError as error:
        raise SetupError(
            "great-expectations is not installed", fix="run pip install -e '.[great-expectations]' in the checkout", job=job
        ) from error
    context = gx.get_context(mode="ephemeral")
    context.variables.progress_bars = {"globally": False}  # type: ignore[assignment] # the setter accepts the file format's value
    suite = gx.ExpectationSuite(name="tidemark", expectations=[_marked(name, given) for name, given in expectations.items()])
    # The suite logs and leaves out expectations that it rejects.
    taken = {(expectation.meta or {}).get(_MARK) for expectation in suite.expectations}
    refused = [f"{name} ({given.get('type')})" for name, given in expectations.items() if name not in taken]
    if refused:
        raise UserCodeError(
            f"Great Expectations rejects {', '.join(refused)}; its log has the reason",
            fix="check type and kwargs of each expectation against its documentation",
            job=job,
        )
    definition = context.data_sources.add_pandas(name="rows").add_dataframe_asset(name="rows").add_batch_definition_whole_dataframe("rows")
    batch = definition.get_batch(batch_parameters={"dataframe": rows.to_pandas()})
    found = batch.validate(
        suite,
        result_format={"result_format": "SUMMARY", "include_unexpected_rows": True, "partial_unexpected_count": SAMPLE},
    )
    outcomes = {outcome.name: outcome for outcome in (_outcome(result) for result in found.results)}
    return [outcomes[name] for name in expectations]


def _marked(name: str, given: Mapping[str, object]) -> dict[str, object]:
    # Results come in another order than the suite's; the mark identifies the expectation of each.
    meta = given.get("meta")
    return {**given, "meta": {**(meta if isinstance(meta, Mapping) else {}), _MARK: name}}


def _outcome(result: ExpectationValidationResult) -> ExpectationOutcome:
    config = result.expectation_config
    if config is None:
        raise TypeError("Great Expectations returned a result without its expectation")
    numbers = {key: number for key, value in (result.result or {}).items() if (number := _number(value)) is not None}
    return ExpectationOutcome(
        name=str((config.meta or {})[_MARK]),
        success=bool(result.success),
        severity=str(getattr(config.severity, "value", config.severity)),
        statistics=numbers,
        sample=_sample(result.result or {}),
        exception=_exception(result.exception_info or {}),
    )


def _number(value: object) -> int | float | None:
    """Return a finite number as a Python number: Dagster does not store numpy numbers, which pandas returns."""
    import numpy as np

    plain = value.item() if isinstance(value, np.number) else value
    if isinstance(plain, bool) or not isinstance(plain, int | float):
        return None
    return plain if math.isfinite(plain) else None


def _sample(result: Mapping[str, object]) -> tuple[Mapping[str, object], ...]:
    import pandas as pd

    rows = result.get("unexpected_rows")
    if isinstance(rows, pd.DataFrame):
        return tuple({str(name): value for name, value in row.items()} for row in rows.head(SAMPLE).to_dict("records"))
    values = result.get("partial_unexpected_list")
    return tuple({"value": value} for value in values) if isinstance(values, Sequence) else ()


def _exception(info: Mapping[str, object]) -> str | None:
    # Either one exception, or one per metric that could not be computed.
    for one in (info, *info.values()):
        if isinstance(one, Mapping) and one.get("raised_exception"):
            return str(one.get("exception_message"))
    return None
