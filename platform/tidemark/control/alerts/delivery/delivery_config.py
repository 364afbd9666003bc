"""Builds receivers from their tables in the alert configuration file."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from urllib.parse import urlsplit

from tidemark.control.alerts.delivery.delivery import Delivery, LogDelivery
from tidemark.control.alerts.delivery.delivery_email import EmailDelivery
from tidemark.control.alerts.delivery.delivery_slack import SlackDelivery
from tidemark.control.alerts.delivery.delivery_webhook import WebhookDelivery
from tidemark.control.alerts.model.config_table import ConfigTable

KINDS = ("log", "webhook", "email", "slack")
_PORTS = 65_535


def delivery_from(table: ConfigTable, environment: Mapping[str, str], *, known_as: str) -> Delivery:
    """Return the delivery that a receiver's table describes.

    Args:
        table: the table; its other keys are read elsewhere.
        environment: environment variables with secrets.
        known_as: the receiver's name, for errors.

    Raises:
        DefinitionError: a key is missing or invalid, a secret is written in the file, or a variable is not set.
    """
    table.required("kind")
    kind = table.choice("kind", KINDS, "log")
    return _MAKERS[kind](table, environment, known_as)


def _log(_table: ConfigTable, _environment: Mapping[str, str], _known_as: str) -> Delivery:
    return LogDelivery()


def _webhook(table: ConfigTable, environment: Mapping[str, str], known_as: str) -> Delivery:
    table.reject_secret("headers", fix='write headers_env = { Authorization = "NAME" }, with the name of an environment variable')
    url, url_env = table.text("url"), table.text("url_env")
    if (url is None) == (url_env is None):
        raise table.error(f"{known_as} needs one of 'url' and 'url_env'", fix="set one; url_env names the variable with the address")
    address = url if url is not None else _secret(table, environment, url_env)
    _check_address(table, address or "", known_as=known_as, written_out=url is not None)
    headers = {name: _secret(table, environment, variable) or "" for name, variable in table.text_map("headers_env").items()}
    return WebhookDelivery(address or "", headers, timeout_seconds=_timeout(table), known_as=known_as)


def _email(table: ConfigTable, environment: Mapping[str, str], known_as: str) -> Delivery:
    table.reject_secret("password", fix='write password_env = "NAME", with the name of an environment variable')
    security = table.choice("security", ("starttls", "tls", "none"), "starttls")
    port = table.integer("port", 0, minimum=1)
    if port > _PORTS:
        raise table.error(f"{known_as} has port {port}", fix=f"set a port up to {_PORTS}")
    username, password = table.text("username"), table.text("password_env")
    if (username is None) != (password is None):
        raise table.error(f"{known_as} has one of 'username' and 'password_env' alone", fix="set both or none")
    if username is not None and security == "none":
        raise table.error(f"{known_as} would send a password unencrypted", fix="set security to starttls or tls, or leave username out")
    return EmailDelivery(
        host=table.required("host"),
        sender=table.required("sender"),
        recipients=_recipients(table),
        port=port or None,
        security="tls" if security == "tls" else "none" if security == "none" else "starttls",
        username=username,
        password=_secret(table, environment, password),
        timeout_seconds=_timeout(table),
        trust=table.text("trust"),
        known_as=known_as,
    )


def _slack(table: ConfigTable, environment: Mapping[str, str], known_as: str) -> Delivery:
    table.reject_secret("token", fix='write token_env = "NAME", with the name of an environment variable')
    token = _secret(table, environment, table.required("token_env"))
    return SlackDelivery(
        token or "",
        channel=table.required("channel"),
        base_url=table.text("base_url"),
        timeout_seconds=max(1, round(_timeout(table))),
        known_as=known_as,
    )


_MAKERS: Mapping[str, Callable[[ConfigTable, Mapping[str, str], str], Delivery]] = {
    "log": _log,
    "webhook": _webhook,
    "email": _email,
    "slack": _slack,
}


def _secret(table: ConfigTable, environment: Mapping[str, str], variable: str | None) -> str | None:
    if variable is None:
        return None
    value = environment.get(variable)
    if not value:
        raise table.error(f"the environment variable {variable} is not set", fix=f"set {variable} for this process")
    return value


def _check_address(table: ConfigTable, address: str, *, known_as: str, written_out: bool) -> None:
    try:
        parts = urlsplit(address)
    except ValueError:
        parts = urlsplit("")
    if parts.scheme not in {"http", "https"} or not parts.hostname:
        raise table.error(f"the address of {known_as} is not http or https", fix="set https://host/path")
    if written_out and (parts.query or "@" in parts.netloc):
        raise table.error(
            f"the address of {known_as} has a user or a query, which may contain a secret",
            fix='write url_env = "NAME", with the name of an environment variable with the address',
        )


def _recipients(table: ConfigTable) -> tuple[str, ...]:
    found = table.text_list("recipients")
    if not found:
        raise table.error("a mail receiver lacks 'recipients'", fix='add recipients = ["ops@example.com"]')
    return found


def _timeout(table: ConfigTable) -> float:
    return table.duration("timeout", 10_000, minimum=100) / 1000
