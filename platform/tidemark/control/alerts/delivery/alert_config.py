"""The alert configuration file: TOML, read strictly. It contains names of environment variables instead of secrets."""

from __future__ import annotations

import os
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from tidemark.control.alerts.delivery.delivery import LogDelivery
from tidemark.control.alerts.delivery.delivery_config import delivery_from
from tidemark.control.alerts.delivery.delivery_queue import RateLimit, Receiver
from tidemark.control.alerts.model.alert_settings import DEFAULT_RULES, RULES, AlertSettings, Grouping, Route, RuleName, RuleSettings
from tidemark.control.alerts.model.config_table import ConfigTable
from tidemark.control.alerts.model.hysteresis import HoldTimes
from tidemark.errors import DefinitionError
from tidemark.names import validate_name

LOG_RECEIVER = "log"


@dataclass(frozen=True)
class AlertConfig:
    """Settings of the rules, and the receivers by name; by default all alerts go to the log."""

    settings: AlertSettings = field(default_factory=AlertSettings)
    receivers: Mapping[str, Receiver] = field(default_factory=lambda: {LOG_RECEIVER: Receiver(LogDelivery())})


def load_alert_config(path: str, environment: Mapping[str, str] | None = None) -> AlertConfig:
    """Read an alert configuration file.

    Args:
        path: path of the file.
        environment: environment variables with the secrets; the process's own by default.

    Raises:
        DefinitionError: it cannot be read, has an invalid setting, or names a variable that is not set.
        DurationError: a duration cannot be read.
    """
    try:
        text = Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise DefinitionError(f"the alerts' file cannot be read: {error}", fix="pass the path of a TOML file", place=path) from error
    return parse_alert_config(text, place=path, environment=os.environ if environment is None else environment)


def parse_alert_config(text: str, *, place: str, environment: Mapping[str, str]) -> AlertConfig:
    """Parse the text of an alert configuration file.

    Raises:
        DefinitionError: it is not TOML, has an invalid setting, or names a variable that is not set.
        DurationError: a duration cannot be read.
    """
    try:
        plain = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise DefinitionError(f"the alerts' file is not TOML: {error}", fix="correct it at the named position", place=place) from error
    top = ConfigTable(plain, where="", place=place)
    rules = top.table("rules")
    settings = AlertSettings({**DEFAULT_RULES, **{name: _rule(rules, name) for name in RULES}}, _grouping(top.table("group")))
    rules.reject_unknown_keys()
    found = {name: _receiver(name, table, environment) for name, table in top.tables("receivers")}
    top.reject_unknown_keys()
    return AlertConfig(settings, found) if found else AlertConfig(settings)


def _rule(rules: ConfigTable, name: RuleName) -> RuleSettings:
    table, default = rules.table(name), DEFAULT_RULES[name]
    known = default.hold_times
    hold_times = HoldTimes(
        for_ms=table.duration("for", known.for_ms),
        clear_ratio=table.number("clear", known.clear_ratio, minimum=0, maximum=1),
        resolve_after_ms=table.duration("resolve_after", known.resolve_after_ms),
    )
    enabled = table.boolean("enabled", default=default.enabled)
    table.reject_unknown_keys()
    return RuleSettings(hold_times, enabled)


def _grouping(table: ConfigTable) -> Grouping:
    default = Grouping()
    found = Grouping(table.duration("wait", default.wait_ms), table.duration("interval", default.interval_ms))
    table.reject_unknown_keys()
    return found


def _receiver(name: str, table: ConfigTable, environment: Mapping[str, str]) -> Receiver:
    validate_name("receiver", name, place=table.place)
    route = Route(
        min_severity="error" if table.choice("least", ("warn", "error"), "warn") == "error" else "warn",
        jobs=table.text_list("jobs", ("*",)),
        rules=tuple(rule for rule in RULES if rule in table.choices("rules", RULES, RULES)),
    )
    rate_limit = RateLimit()
    rate_limit = RateLimit(
        max_single_messages=table.integer("single", rate_limit.max_single_messages, minimum=1),
        max_messages=table.integer("most", rate_limit.max_messages, minimum=1),
        per_ms=table.duration("per", rate_limit.per_ms, minimum=1),
    )
    delivery = delivery_from(table, environment, known_as=f"[receivers.{name}]")
    table.reject_unknown_keys()
    return Receiver(delivery, route, rate_limit)
