"""Checks of a spec before it is written; a stored spec is read without them."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from typing import Final

from tidemark.control.desired.job_import import definition_fields, is_job_file
from tidemark.control.model.autoscaler_settings import check_autoscaler
from tidemark.control.model.spec import JobSpec, RestartPolicy
from tidemark.errors import DefinitionError
from tidemark.names import validate_name
from tidemark.spark.sources.intake_limits import MAX_SHARE, MIN_SHARE
from tidemark.state.encoding.redaction import redacted

KEPT_FAILURES: Final = 50
"""How many failures are stored; a restart policy cannot count more."""

_NOT_SECRET = re.compile(r"(?i)(provider|providers|type|class|path|file|endpoint|location|enabled)$")
"""Settings about secrets that contain none, such as ``fs.s3a.aws.credentials.provider``."""

_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


def checked_spec(spec: JobSpec, before: JobSpec | None = None) -> JobSpec:
    """Return the spec if it is valid.

    Args:
        spec: the spec to write.
        before: the newest one. Its values may stay, even if they look like secrets: an older release may have accepted them, and
            stopping the job does not change them.

    Raises:
        DefinitionError: a value is invalid; the message says which, and the fix.
    """
    validate_name("job", spec.job)
    if not all(spec.code.partition(":")):
        raise _wrong(spec, f"code={spec.code!r} does not name a job", "name it as MODULE:JOB, such as examples.taxi.job:job")
    _check_definition(spec)
    for what, value, least in (
        ("trigger_ms", spec.trigger_ms, 0),
        ("restarts", spec.restarts, 0),
        ("parallelism", spec.parallelism, 1),
        ("start_timeout_ms", spec.start_timeout_ms, 1_000),
        ("hang_after_ms", spec.hang_after_ms, 1_000),
    ):
        if value is not None and value < least:
            raise _wrong(spec, f"{what}={value} is too small", f"give at least {least}")
    if spec.standby and spec.launcher != "local":
        raise _wrong(spec, f"standby=True requires the launcher 'local', not {spec.launcher!r}", "leave standby out")
    _check_restart(spec, spec.restart)
    _check_scaling(spec)
    _check_alerts(spec, before)
    for name in spec.variables:
        if not _VARIABLE.fullmatch(name):
            raise _wrong(spec, f"{name!r} cannot be the name of an environment variable", "use letters, digits and '_'")
    pairs = _pairs(spec)
    known = frozenset(_pairs(before)) if before is not None else frozenset()
    for name, text in pairs:
        if (name, text) not in known and _is_secret(name, text):
            raise _wrong(
                spec,
                f"the value of {name} looks like a secret, and specs are stored for ever and shown",
                "set it in the environment of the process that starts the driver (supervisor or Dagster), which a driver inherits",
            )
    texts = (spec.code, *(part for pair in pairs for part in pair))
    if any("\0" in text for text in texts):
        raise _wrong(spec, "a text contains a null character", "remove it")
    return spec


def checked_settings(settings: Mapping[str, str]) -> Mapping[str, str]:
    """Return Spark settings unchanged if they pass the checks of a spec's settings.

    Raises:
        DefinitionError: one contains a secret, which the list of processes and Spark's UI show, or a null character.
    """
    for name, text in settings.items():
        if _is_secret(name, text):
            raise DefinitionError(
                f"the value of {name} looks like a secret, and the list of processes and Spark's UI show it",
                fix="set it in the environment, or in the file spark-defaults.conf of the folder in $SPARK_CONF_DIR",
            )
        if "\0" in name + text:
            raise DefinitionError("a text contains a null character", fix="remove it")
    return settings


def _pairs(spec: JobSpec) -> tuple[tuple[str, str], ...]:
    """Return the free texts of a spec with their names."""
    places = (("version", spec.version), ("master", spec.master), ("folder", spec.folder or ""), ("outputs_root", spec.outputs_root or ""))
    return (*places, *(("code_paths", path) for path in spec.code_paths), *spec.conf.items(), *spec.variables.items())


def _is_secret(name: str, value: str) -> bool:
    """Return whether a setting contains a credential, by its name or the form of its value."""
    by_name = not _NOT_SECRET.search(name) and redacted(f"{name}={value}") != f"{name}={value}"
    return by_name or redacted(value) != value


def _check_definition(spec: JobSpec) -> None:
    """Make sure that a spec holds the definition of a job in YAML: drivers do not read the file."""
    if is_job_file(spec.code) and spec.definition is None:
        raise _wrong(
            spec,
            f"{spec.code} is a file, and what it says is not given",
            "name it to `tidemark` where the file is, which reads it; in Python give code and definition of job_code(...)",
        )
    if spec.definition is not None and not is_job_file(spec.code):
        raise _wrong(spec, f"{spec.code} is no file of YAML, and has a definition", "leave the definition out")
    if spec.definition is None:
        return
    try:
        document = definition_fields(spec.code, spec.definition)
    except DefinitionError as error:
        raise error.with_job(spec.job) from None
    secret = next((text for text in _texts(document) if "://" in text and redacted(text) != text), None)
    option = next((name for name, text in _options(document) if _is_secret(name, text)), None)
    if option is not None or secret is not None:
        what = f"the option {option!r}" if option is not None else f"{redacted(secret or '')!r}"
        raise _wrong(
            spec,
            f"{what} contains a secret, and specs are stored for ever and shown",
            "set it in the environment of the process that starts the driver, and name the variable in the YAML: `options_env`",
        )


def _texts(value: object) -> Iterator[str]:
    """Yield the texts of a document, those of its keys left out."""
    if isinstance(value, str):
        yield value
    for each in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        yield from _texts(each)


def _options(value: object) -> Iterator[tuple[str, str]]:
    """Yield the names and values of all options in a document."""
    for name, each in value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ():
        if name == "options" and isinstance(each, dict):
            yield from ((str(key), text) for key, text in each.items() if isinstance(text, str))
        else:
            yield from _options(each)


def _check_restart(spec: JobSpec, policy: RestartPolicy) -> None:
    for what, value, least in (
        ("initial_ms", policy.initial_ms, 0),
        ("longest_ms", policy.longest_ms, policy.initial_ms),
        ("delay_ms", policy.delay_ms, 0),
        ("reset_after_ms", policy.reset_after_ms, 1),
        ("attempts", policy.attempts, 0),
        ("failures_per", policy.failures_per, 0),
        ("per_ms", policy.per_ms, 1),
        ("same_epoch_failures", policy.same_epoch_failures, 0),
        ("factor", policy.factor, 1),
        ("jitter", policy.jitter, 0),
    ):
        if not value >= least:
            raise _wrong(spec, f"restart.{what}={value} is too small", f"give at least {least}")
    if math.isinf(policy.factor):
        raise _wrong(spec, f"restart.factor={policy.factor} is infinite", "give a number, such as 2")
    if not policy.jitter <= 1:
        raise _wrong(spec, f"restart.jitter={policy.jitter} is more than the whole delay", "give a share from 0 to 1")
    counts = {"attempts": policy.attempts, "failures_per": policy.failures_per, "same_epoch_failures": policy.same_epoch_failures}
    for what, most in counts.items():
        if most >= KEPT_FAILURES:
            raise _wrong(
                spec, f"restart.{what}={most} is more failures than are stored", f"give less than {KEPT_FAILURES}, or another kind"
            )


def _check_alerts(spec: JobSpec, before: JobSpec | None) -> None:
    """Make sure that a warning comes before an error: else each alert would be an error at once."""
    alerts = spec.alerts
    if before is not None and alerts == before.alerts:
        return
    for name, unit, warn, error in (
        ("lag", "_ms", alerts.lag_warn_ms, alerts.lag_error_ms),
        ("late", "", alerts.late_warn, alerts.late_error),
        ("memory", "", alerts.memory_warn, alerts.memory_error),
        ("gc", "", alerts.gc_warn, alerts.gc_error),
    ):
        if warn is not None and error is not None and not warn <= error:
            options = f" (`--{name}-warn`, `--{name}-error`)" if name in {"lag", "late"} else ""
            raise _wrong(
                spec,
                f"alerts.{name}_warn{unit}={warn} is above {name}_error{unit}={error}, so that each alert would be an error",
                f"give both{options}, the error at least as high as the warning",
            )


def _check_scaling(spec: JobSpec) -> None:
    if spec.intake is not None and not MIN_SHARE <= spec.intake <= MAX_SHARE:
        raise _wrong(spec, f"intake={spec.intake} is no share of the usual bounds", f"give a number from {MIN_SHARE} to {MAX_SHARE:g}")
    try:
        check_autoscaler(spec.autoscaler)
    except DefinitionError as error:
        raise error.with_job(spec.job) from None


def _wrong(spec: JobSpec, what: str, fix: str) -> DefinitionError:
    return DefinitionError(what, fix=fix, job=spec.job)
