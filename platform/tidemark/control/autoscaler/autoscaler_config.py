"""The autoscaler's settings in a TOML file, read strictly."""

from __future__ import annotations

import tomllib
from pathlib import Path

from tidemark.control.alerts.model.config_table import ConfigTable
from tidemark.control.model.autoscaler_settings import MODES, AutoscalerSettings, check_autoscaler
from tidemark.errors import DefinitionError
from tidemark.spark.sources.intake_limits import MAX_SHARE, MIN_SHARE

_MOST_FACTOR = 1_000.0


def load_autoscaler_config(path: str) -> AutoscalerSettings:
    """Read a file with settings of an autoscaler; those that it does not name have their defaults.

    Raises:
        DefinitionError: it cannot be read, or has an invalid setting.
        DurationError: a duration cannot be read.
    """
    try:
        text = Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise DefinitionError(f"the autoscaler's file cannot be read: {error}", fix="pass the path of a TOML file", place=path) from error
    return parse_autoscaler_config(text, place=path)


def parse_autoscaler_config(text: str, *, place: str) -> AutoscalerSettings:
    """Parse the text of such a file: a table ``[autoscaler]``.

    Raises:
        DefinitionError: it is not TOML, or has an invalid setting.
        DurationError: a duration cannot be read.
    """
    try:
        plain = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise DefinitionError(f"the autoscaler's file is not TOML: {error}", fix="correct it at the named position", place=place) from error
    top = ConfigTable(plain, where="", place=place)
    if "autoscaler" not in plain and any(not isinstance(value, dict) for value in plain.values()):
        raise top.error("the autoscaler's file has settings outside of a table", fix="write [autoscaler] in a line above them")
    found = _settings(top.table("autoscaler"))
    top.reject_unknown_keys()
    check_autoscaler(found)
    return found


def _settings(table: ConfigTable) -> AutoscalerSettings:
    default = AutoscalerSettings()
    mode = table.choice("mode", MODES, default.mode)
    found = AutoscalerSettings(
        mode=next(known for known in MODES if known == mode),
        utilization_target=_share(table, "utilization_target", default.utilization_target),
        utilization_min=_share(table, "utilization_min", default.utilization_min),
        utilization_max=_share(table, "utilization_max", default.utilization_max),
        catch_up_ms=table.duration("catch_up", default.catch_up_ms),
        min_parallelism=table.integer("min_parallelism", default.min_parallelism, minimum=1),
        max_parallelism=table.integer("max_parallelism", 0, minimum=1) or None,
        min_intake=table.number("min_intake", default.min_intake, minimum=MIN_SHARE, maximum=MAX_SHARE),
        max_intake=table.number("max_intake", default.max_intake, minimum=MIN_SHARE, maximum=MAX_SHARE),
        window_ms=table.duration("window", default.window_ms),
        stabilization_ms=table.duration("stabilization", default.stabilization_ms),
        scale_down_interval_ms=table.duration("scale_down_interval", default.scale_down_interval_ms),
        scale_up_max_factor=table.number("scale_up_max_factor", default.scale_up_max_factor, minimum=1, maximum=_MOST_FACTOR),
        scale_down_max_factor=_share(table, "scale_down_max_factor", default.scale_down_max_factor),
        max_changes_per_day=table.integer("max_changes_per_day", default.max_changes_per_day, minimum=0),
        effectiveness_threshold=_share(table, "effectiveness_threshold", default.effectiveness_threshold),
        quiet_times=table.text_list("quiet_times"),
        zone=table.text("zone", default.zone) or default.zone,
    )
    table.reject_unknown_keys()
    return found


def _share(table: ConfigTable, key: str, default: float) -> float:
    return table.number(key, default, minimum=0, maximum=1)
