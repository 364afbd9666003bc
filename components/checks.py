"""The checks of a job in YAML: one model for each, with the arguments of the check of that name."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any, Final, Literal

import dagster as dg
from pydantic import Field

from tidemark.assets.checks.check import OutputCheck
from tidemark.assets.checks.conservation import Conservation
from tidemark.assets.checks.expectations import ExpectationChecks, expectation_checks
from tidemark.assets.checks.inputs_visible import InputsVisible
from tidemark.assets.checks.lateness_checks import LateRatio, WatermarkFreshness
from tidemark.assets.checks.pane_checks import NoGaps, UniquePanes
from tidemark.assets.checks.state_compatible import StateFits
from tidemark.assets.report.lag import LagReference
from tidemark.errors import DefinitionError


class _CheckModel(dg.Model):
    """What all checks have; a field that is not given has the check's own default."""

    output: str | None = Field(default=None, description="The output; the job's first main output by default.")
    blocking: bool | None = Field(default=None, description="Whether downstream assets are kept from running when it fails.")
    name: str | None = Field(default=None, description="The name of the check; needed where an output has two of one type.")


class ConservationModel(_CheckModel):
    """Rows in are rows out, in every operator and table."""

    type: Literal["conservation"]
    compare_tables: bool | None = Field(default=None, description="Whether the rows of tables are counted, too; they are by default.")


class UniquePanesModel(_CheckModel):
    """No row of an output occurs twice."""

    type: Literal["unique_panes"]
    columns: tuple[str, ...] | None = Field(
        default=None, description="The columns that identify a row; by default those of the output's keys."
    )


class NoGapsModel(_CheckModel):
    """Between the first and the last window no window is missing."""

    type: Literal["no_gaps"]
    every: str | None = Field(default=None, description="Distance of the windows' starts, such as '1 hour'; the windows' own by default.")
    by: tuple[str, ...] | None = Field(default=None, description="Look for gaps within each value of these columns.")


class LateRatioModel(_CheckModel):
    """The share of late rows stays small."""

    type: Literal["late_ratio"]
    warn_above: float | None = Field(default=None, description="Share of the rows, from 0 to 1.")
    error_above: float | None = Field(default=None, description="Share of the rows, from 0 to 1.")


class WatermarkFreshnessModel(_CheckModel):
    """The watermark is not too far behind."""

    type: Literal["watermark_freshness"]
    warn_after: str | None = Field(default=None, description="Such as '15 minutes'; by default it follows from the sources' bound.")
    error_after: str | None = Field(default=None, description="Such as '1 hour'; by default it follows from the sources' bound.")
    reference: LagReference | None = Field(default=None, description="What the lag is measured from; processing time by default.")


class StateFitsModel(_CheckModel):
    """The stored state fits the job's code."""

    type: Literal["state_fits"]
    against: str | None = Field(default=None, description="A savepoint; the newest epoch by default.")
    allow_non_restored_state: bool | None = Field(default=None, description="Whether state may be dropped that no operator claims.")
    uids: dict[str, str | None] | None = Field(default=None, description="Operators whose uid was changed: new uid by old uid.")
    columns: dict[str, dict[str, str | None]] | None = Field(
        default=None, description="Renamed keys and columns: by uid, new name by old name."
    )


class InputsVisibleModel(_CheckModel):
    """What came of these inputs is visible in an output."""

    type: Literal["inputs_visible"]
    inputs: list[str] = Field(description="Such as file:/data/landing/7.json or kafka:rides:0:4711.")
    source: str | None = Field(default=None, description="The source that reads them, where the job has several.")
    severity: Literal["WARN", "ERROR"] | None = Field(default=None, description="Of a failure; WARN by default.")


class ExpectationModel(dg.Model):
    """One expectation of Great Expectations, as a suite stores it."""

    type: str = Field(description="Such as expect_column_values_to_not_be_null.", pattern="^expect_[a-z0-9_]+$")
    kwargs: dict[str, Any] = Field(default_factory=dict, description="Its arguments, such as a column.")
    severity: Literal["critical", "warning", "info"] | None = Field(default=None, description="critical is an error; others are warnings.")
    check: str | None = Field(default=None, description="The check's name; by default type and column.")


class ExpectationsModel(dg.Model):
    """A suite of Great Expectations: one check for each expectation, on the table of an output."""

    type: Literal["expectations"]
    output: str | None = Field(default=None, description="The output; the job's first main output by default.")
    suite: str = Field(default="suite", description="The suite's name.")
    expectations: list[ExpectationModel] = Field(description="The expectations.", min_length=1)
    rows: Literal["table", "run"] | None = Field(default=None, description="The whole table, by default, or the rows that a run added.")
    severity: Literal["error", "warn"] | None = Field(default=None, description="Of all checks; each expectation's own by default.")
    blocking: bool | None = Field(default=None, description="Whether downstream assets are kept from running when one fails.")
    max_rows: int | None = Field(default=None, description="A larger table is not read; its checks fail as warnings.", ge=1)


CheckModel = Annotated[
    ConservationModel
    | UniquePanesModel
    | NoGapsModel
    | LateRatioModel
    | WatermarkFreshnessModel
    | StateFitsModel
    | InputsVisibleModel
    | ExpectationsModel,
    Field(discriminator="type"),
]


def _expectations(*, suite: str = "suite", expectations: Sequence[Mapping[str, Any]], **options: Any) -> ExpectationChecks:  # noqa: ANN401
    """Return the checks of a suite.

    Great Expectations itself is imported by runs only, so a type that it does not have, or wrong arguments, show there.
    """
    found = []
    for each in expectations:
        plain = dict(each)
        found.append({"meta": {"check": plain.pop("check", None)}, **plain})
    return expectation_checks({"name": suite, "expectations": found}, **options)


CHECKS: Final[Mapping[str, Callable[..., OutputCheck]]] = {
    "conservation": Conservation,
    "unique_panes": UniquePanes,
    "no_gaps": NoGaps,
    "late_ratio": LateRatio,
    "watermark_freshness": WatermarkFreshness,
    "state_fits": StateFits,
    "inputs_visible": InputsVisible,
    "expectations": _expectations,
}
"""The check of each type."""


def resolve_checks(context: dg.ResolutionContext, given: Sequence[dg.Model | str]) -> list[OutputCheck]:
    """Return the checks that YAML lists: by type with arguments, or as templates of Python, such as ``{{ suite() }}``.

    Raises:
        DefinitionError: a template is no check.
    """
    found: list[OutputCheck] = []
    for model in given:
        if isinstance(model, str):
            found += _of_template(model, context.resolve_value(model))
            continue
        arguments = dict(context.resolve_value(model.model_dump(exclude_none=True)))
        if "severity" in arguments and arguments["type"] != "expectations":
            arguments["severity"] = dg.AssetCheckSeverity(arguments["severity"])
        found.append(CHECKS[arguments.pop("type")](**arguments))
    return found


def _of_template(text: str, value: object) -> list[OutputCheck]:
    several = value if isinstance(value, list | tuple) else [value]
    found = [each for each in several if isinstance(each, OutputCheck)]
    if len(found) < len(several):
        raise DefinitionError(
            f"{text} in `checks` is no check, and no list of checks",
            fix="return such as expectation_checks(...) from a function with @dg.template_var, or write `type:`",
        )
    return found


ResolvedChecks = Annotated[
    list[OutputCheck],
    dg.Resolver(
        resolve_checks,
        model_field_type=list[CheckModel | str],
        description="Checks of the outputs.",
        examples=[[{"type": "conservation"}, {"type": "late_ratio", "output": "hourly", "error_above": 0.05}]],
        inject_before_resolve=False,
    ),
]
