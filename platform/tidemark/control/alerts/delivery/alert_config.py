"""The file that says who is told what: TOML, read strictly. It holds no secrets, but names of environment variables that do."""

from __future__ import annotations

import os
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from tidemark.control.alerts.delivery.delivery import LogDelivery
from tidemark.control.alerts.delivery.delivery_config import delivery_from
from tidemark.control.alerts.delivery.delivery_queue import Pace, Receiver
from tidemark.control.alerts.model.alert_gate import Patience
from tidemark.control.alerts.model.alert_settings import DEFAULT_RULES, RULES, AlertSettings, Grouping, Route, RuleName, RuleSettings
from tidemark.control.alerts.model.config_table import ConfigTable
from tidemark.errors import DefinitionError
from tidemark.names import validate_name

LOG_RECEIVER = "log"


@dataclass(frozen=True)
class AlertConfig:
    """Settings of the rules, and the receivers by name; by default everything goes to the log."""

    settings: AlertSettings = field(default_factory=AlertSettings)
    receivers: Mapping[str, Receiver] = field(default_factory=lambda: {LOG_RECEIVER: Receiver(LogDelivery())})


def load_alert_config(path: str, environment: Mapping[str, str] | None = None) -> AlertConfig:
    """Read the file.

    Args:
        path: of the file.
        environment: variables that hold the secrets; the process's own by default.

    Raises:
        DefinitionError: it cannot be read, or says what is not understood, or names a variable that is not set.
        DurationError: a duration cannot be read.
    """
    try:
        text = Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise DefinitionError(f"the alerts' file cannot be read: {error}", fix="give the path of a TOML file", place=path) from error
    return parse_alert_config(text, place=path, environment=os.environ if environment is None else environment)


def parse_alert_config(text: str, *, place: str, environment: Mapping[str, str]) -> AlertConfig:
    """Read the file's text.

    Raises:
        DefinitionError: it is not TOML, or says what is not understood, or names a variable that is not set.
        DurationError: a duration cannot be read.
    """
    try:
        plain = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise DefinitionError(f"the alerts' file is not TOML: {error}", fix="mend it at the place named", place=place) from error
    top = ConfigTable(plain, where="", place=place)
    rules = top.table("rules")
    settings = AlertSettings({**DEFAULT_RULES, **{name: _rule(rules, name) for name in RULES}}, _grouping(top.table("group")))
    rules.finish()
    found = {name: _receiver(name, table, environment) for name, table in top.tables("receivers")}
    top.finish()
    return AlertConfig(settings, found) if found else AlertConfig(settings)


def _rule(rules: ConfigTable, name: RuleName) -> RuleSettings:
    table, default = rules.table(name), DEFAULT_RULES[name]
    known = default.patience
    patience = Patience(
        for_ms=table.duration("for", known.for_ms),
        clear=table.number("clear", known.clear, least=0, most=1),
        resolve_after_ms=table.duration("resolve_after", known.resolve_after_ms),
    )
    enabled = table.flag("enabled", default=default.enabled)
    table.finish()
    return RuleSettings(patience, enabled)


def _grouping(table: ConfigTable) -> Grouping:
    default = Grouping()
    found = Grouping(table.duration("wait", default.wait_ms), table.duration("interval", default.interval_ms))
    table.finish()
    return found


def _receiver(name: str, table: ConfigTable, environment: Mapping[str, str]) -> Receiver:
    validate_name("receiver", name, place=table.place)
    route = Route(
        least="error" if table.choice("least", ("warn", "error"), "warn") == "error" else "warn",
        jobs=table.texts("jobs", ("*",)),
        rules=tuple(rule for rule in RULES if rule in table.choices("rules", RULES, RULES)),
    )
    pace = Pace()
    pace = Pace(
        single=table.whole("single", pace.single, least=1),
        most=table.whole("most", pace.most, least=1),
        per_ms=table.duration("per", pace.per_ms, least=1),
    )
    delivery = delivery_from(table, environment, known_as=f"[receivers.{name}]")
    table.finish()
    return Receiver(delivery, route, pace)
