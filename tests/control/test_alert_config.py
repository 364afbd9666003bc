from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest

from tests.control.alert_cases import source
from tidemark.control.alerts.delivery.alert_config import AlertConfig, load_alert_config, parse_alert_config
from tidemark.control.alerts.delivery.delivery import LogDelivery
from tidemark.control.alerts.delivery.delivery_email import EmailDelivery
from tidemark.control.alerts.delivery.delivery_queue import RateLimit, Receiver
from tidemark.control.alerts.delivery.delivery_slack import SlackDelivery
from tidemark.control.alerts.delivery.delivery_webhook import WebhookDelivery
from tidemark.control.alerts.engine.alert_rules import lag_limits
from tidemark.control.alerts.model.alert_settings import DEFAULT_RULES, AlertSettings, Grouping, Route, RuleSettings
from tidemark.control.alerts.model.hysteresis import HoldTimes, Limits
from tidemark.control.desired.spec_checks import checked_spec
from tidemark.control.model.spec import AlertThresholds, JobSpec
from tidemark.errors import DefinitionError, TidemarkError

WHOLE = """
[group]
wait = "10 seconds"
interval = "1 minute"

[rules.lag]
for = "2 minutes"
clear = 0.5
resolve_after = "5 minutes"

[rules.late]
enabled = false

[receivers.log]
kind = "log"

[receivers.ops]
kind = "webhook"
url = "https://hooks.example.com/tidemark"
headers_env = { Authorization = "OPS_TOKEN" }
timeout = "5 seconds"
least = "error"
jobs = ["taxi*", "bikes"]
rules = ["health", "lag"]
single = 1
most = 5
per = "1 hour"

[receivers.mail]
kind = "email"
host = "smtp.example.com"
sender = "tidemark@example.com"
recipients = ["ops@example.com"]
username = "mailer"
password_env = "SMTP_PASSWORD"

[receivers.chat]
kind = "slack"
token_env = "SLACK_TOKEN"
channel = "#streams"
"""
ENVIRONMENT = {"OPS_TOKEN": "Bearer t", "SMTP_PASSWORD": "p", "SLACK_TOKEN": "x"}


def parse(text: str) -> AlertConfig:
    return parse_alert_config(text, place="alerts.toml", environment=ENVIRONMENT)


def test_the_whole_file_is_understood() -> None:
    found = parse(WHOLE)
    rules = {**DEFAULT_RULES, "lag": RuleSettings(HoldTimes(120_000, 0.5, 300_000))}
    rules["late"] = RuleSettings(DEFAULT_RULES["late"].hold_times, enabled=False)
    assert found.settings == AlertSettings(rules, Grouping(10_000, 60_000))
    assert found.receivers == {
        "log": Receiver(LogDelivery()),
        "ops": Receiver(
            WebhookDelivery(
                "https://hooks.example.com/tidemark", {"Authorization": "Bearer t"}, timeout_seconds=5.0, known_as="[receivers.ops]"
            ),
            Route(min_severity="error", jobs=("taxi*", "bikes"), rules=("lag", "health")),
            RateLimit(max_single_messages=1, max_messages=5, per_ms=3_600_000),
        ),
        "mail": Receiver(
            EmailDelivery(
                "smtp.example.com",
                "tidemark@example.com",
                ("ops@example.com",),
                username="mailer",
                password="p",  # noqa: S106 - it opens nothing
                known_as="[receivers.mail]",
            )
        ),
        "chat": Receiver(SlackDelivery("x", "#streams", known_as="[receivers.chat]")),
    }


def test_an_empty_file_sends_everything_to_the_log() -> None:
    assert parse("") == AlertConfig()
    assert list(AlertConfig().receivers) == ["log"]


def test_a_file_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "alerts.toml"
    path.write_text(WHOLE, encoding="utf-8")
    assert load_alert_config(str(path), ENVIRONMENT) == parse(WHOLE)
    for name, value in ENVIRONMENT.items():
        monkeypatch.setenv(name, value)
    assert load_alert_config(str(path)) == parse(WHOLE)
    with pytest.raises(DefinitionError, match="cannot be read"):
        load_alert_config(str(tmp_path / "gone.toml"))


HOOK = '[receivers.ops]\nkind = "webhook"\n'
MAIL = '[receivers.mail]\nkind = "email"\nhost = "h"\nsender = "s@x"\nrecipients = ["r@x"]\n'


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[rules", "not TOML"),
        ("[rule.lag]", r"the file has an unknown 'rule'.*did you mean 'rules'"),
        ("[rules.lags]", r"\[rules\] has an unknown 'lags'.*did you mean 'lag'"),
        ('[rules.lag]\nfro = "1 s"', r"\[rules\.lag\] has an unknown 'fro'.*did you mean 'for'"),
        ('[rules.lag]\nfor = "soon"', r"rules\.lag\.for='soon' is not a duration"),
        ("[rules.lag]\nfor = 5", r"rules\.lag\.for = 5 is not a text"),
        ("[rules.lag]\nclear = 2", r"rules\.lag\.clear = 2 is not a number from 0 to 1"),
        ('[rules.lag]\nenabled = "no"', r"rules\.lag\.enabled = 'no' is not true or false"),
        ("rules = 1", "rules is not a table"),
        ("[receivers.ops]", r"\[receivers\.ops\] lacks 'kind'"),
        ('[receivers.ops]\nkind = "webhok"', r"kind = 'webhok' is not one of log, webhook, email, slack.*did you mean 'webhook'"),
        ('[receivers."a/b"]\nkind = "log"', "receiver name 'a/b' is not allowed"),
        (HOOK, "needs one of 'url' and 'url_env'"),
        (f'{HOOK}url = "https://x"\nurl_env = "Y"', "needs one of 'url' and 'url_env'"),
        (f'{HOOK}url_env = "NOT_SET"', "environment variable NOT_SET is not set"),
        (f'{HOOK}url = "ftp://x"', "is not http or https"),
        (f'{HOOK}url = "https://x/?token=s3cr3t"', "has a user or a query, which may contain a secret"),
        (f'{HOOK}url = "https://user:s3cr3t@x/"', "has a user or a query, which may contain a secret"),
        (f'{HOOK}url = "https://x"\nheaders = {{ A = "s3cr3t" }}', r"receivers\.ops\.headers would contain a secret"),
        (f'{HOOK}url = "https://x"\nleast = "ok"', r"least = 'ok' is not one of warn, error"),
        (f'{HOOK}url = "https://x"\nrules = ["lags"]', r"rules = 'lags' is not of lag, late"),
        (f'{HOOK}url = "https://x"\njobs = []', r"jobs = \[\] is not a list of texts"),
        (f'{HOOK}url = "https://x"\nmost = 0', "most = 0 is not a whole number, at least 1"),
        (f'{HOOK}url = "https://x"\ntoken_env = "A"', "has an unknown 'token_env'"),
        (f'{MAIL}password = "s3cr3t"', r"receivers\.mail\.password would contain a secret"),
        (f'{MAIL}username = "u"', "one of 'username' and 'password_env' alone"),
        (f'{MAIL}username = "u"\npassword_env = "SMTP_PASSWORD"\nsecurity = "none"', "unencrypted"),
        (f"{MAIL}port = 70000", "port 70000"),
        ('[receivers.mail]\nkind = "email"\nhost = "h"\nsender = "s@x"', "lacks 'recipients'"),
        ('[receivers.chat]\nkind = "slack"\nchannel = "#s"\ntoken = "s3cr3t"', r"receivers\.chat\.token would contain a secret"),
    ],
)
def test_what_is_not_understood_is_said_clearly_and_without_secrets(text: str, said: str) -> None:
    with pytest.raises(TidemarkError, match=said) as raised:
        parse(text)
    assert "alerts.toml" in str(raised.value)
    assert "Fix: " in str(raised.value)
    assert "s3cr3t" not in str(raised.value)
    assert raised.value.transient is False


def test_the_files_of_the_documentation_are_understood() -> None:
    page = (Path(__file__).resolve().parents[2] / "docs/how-to/alerts.md").read_text(encoding="utf-8")
    files = re.findall(r"^```toml\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    assert len(files) == 3
    environment = {"PAGER_URL": "https://pager.example.com/s3cr3t", "PAGER_TOKEN": "t", "SMTP_PASSWORD": "p", "SLACK_TOKEN": "x"}
    found = [parse_alert_config(text, place="docs/how-to/alerts.md", environment=environment) for text in files]
    assert list(found[0].receivers) == ["log", "pager", "taxi-team", "chat"]
    assert found[1].settings.rule("lag").hold_times == HoldTimes(300_000, 0.5, 120_000)
    assert found[2].settings.grouping == Grouping(60_000, 900_000)


def test_the_defaults_are_those_of_the_documentation() -> None:
    assert AlertThresholds() == AlertThresholds(None, None, late_warn=0.001, late_error=0.01, restarts_warn=3, savepoint_age_ms=None)
    assert AlertThresholds() == AlertThresholds(memory_warn=0.9, memory_error=0.97, gc_warn=0.2, gc_error=0.5)
    assert lag_limits(AlertThresholds(), source(0, bound_ms=10_000)) == Limits(300_000, 900_000)
    assert lag_limits(AlertThresholds(), source(0, bound_ms=120_000)) == Limits(600_000, 1_800_000)
    assert lag_limits(AlertThresholds(lag_warn_ms=1_000), source(0)) == Limits(1_000, 3_000)
    assert {
        name: (rule.hold_times.for_ms, rule.hold_times.clear_ratio, rule.hold_times.resolve_after_ms)
        for name, rule in DEFAULT_RULES.items()
    } == {
        "lag": (60_000, 0.8, 60_000),
        "late": (0, 0.5, 0),
        "health": (30_000, 1.0, 30_000),
        "check": (0, 1.0, 0),
        "restarts": (0, 1.0, 0),
        "memory": (180_000, 0.95, 60_000),
        "gc": (180_000, 0.75, 60_000),
        "savepoint": (0, 1.0, 0),
    }
    assert (Grouping(), RateLimit()) == (Grouping(20_000, 300_000), RateLimit(3, 20, 600_000, 2_000, 300_000))


@pytest.mark.parametrize(
    ("alerts", "said"),
    [
        (AlertThresholds(late_warn=0.05), r"alerts\.late_warn=0\.05 is above late_error=0\.01.*`--late-error`\), the error at least"),
        (AlertThresholds(lag_warn_ms=2_000, lag_error_ms=1_000), r"alerts\.lag_warn_ms=2000 is above lag_error_ms=1000"),
        (AlertThresholds(memory_warn=0.99), r"alerts\.memory_warn=0\.99 is above memory_error=0\.97"),
        (AlertThresholds(gc_error=0.1), r"alerts\.gc_warn=0\.2 is above gc_error=0\.1"),
    ],
)
def test_a_warning_above_its_error_is_refused(alerts: AlertThresholds, said: str) -> None:
    """Each alert would be an error at once, although the user asked for fewer."""
    spec = JobSpec("fares", "fares:job", alerts=alerts)
    with pytest.raises(DefinitionError, match=said):
        checked_spec(spec)
    assert checked_spec(replace(spec, wanted="suspended"), spec).wanted == "suspended", "a stored one can be stopped"


def test_warnings_up_to_their_errors_are_taken() -> None:
    for alerts in (AlertThresholds(late_warn=0.05, late_error=0.05), AlertThresholds(lag_warn_ms=2_000), AlertThresholds(lag_error_ms=1)):
        assert checked_spec(JobSpec("fares", "fares:job", alerts=alerts)).alerts == alerts
