"""The client of Kafka: its settings, with secrets from the environment, and its errors in words."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import ModuleType
from typing import TYPE_CHECKING, Any, Final

from tidemark.errors import DefinitionError, PublishError, SetupError, SinkError, TidemarkError
from tidemark.state.encoding.redaction import HIDDEN, redacted

if TYPE_CHECKING:
    from confluent_kafka import KafkaError

_DEFAULTS: Final[Mapping[str, str | int | bool]] = {
    # Java's default partitioner: the same key goes to the partition that Java's clients expect.
    "partitioner": "murmur2_random",
    "compression.type": "lz4",
    "linger.ms": 20,
    # What a killed driver leaves holds readers back until the next start, or this long.
    "transaction.timeout.ms": 300_000,
}
_CONNECTION: Final = ("ssl.", "sasl.", "security.", "socket.", "client.", "broker.", "metadata.", "reconnect.", "debug", "enable.ssl")
_DENIED: Final = frozenset(
    {
        "_AUTHENTICATION",
        "SASL_AUTHENTICATION_FAILED",
        "TOPIC_AUTHORIZATION_FAILED",
        "GROUP_AUTHORIZATION_FAILED",
        "CLUSTER_AUTHORIZATION_FAILED",
        "TRANSACTIONAL_ID_AUTHORIZATION_FAILED",
    }
)
_NO_TOPIC: Final = frozenset({"UNKNOWN_TOPIC_OR_PART", "_UNKNOWN_TOPIC", "_UNKNOWN_PARTITION", "UNKNOWN_TOPIC_ID"})
_REFUSED: Final = frozenset({"MSG_SIZE_TOO_LARGE", "INVALID_RECORD", "RECORD_LIST_TOO_LARGE", "TOPIC_EXCEPTION"})
_WRONG_SETTING: Final = frozenset({"_INVALID_ARG", "_UNSUPPORTED_FEATURE", "INVALID_TRANSACTION_TIMEOUT", "_SSL"})


def library(output: str) -> ModuleType:
    """Return the client's module.

    Raises:
        SetupError: it is not installed.
    """
    try:
        import confluent_kafka
    except ImportError as error:
        raise SetupError(
            f"output {output!r} is published to Kafka, and confluent-kafka is not installed",
            fix="run pip install -e '.[kafka]' in the checkout where the driver runs",
            uid=output,
        ) from error
    return confluent_kafka


@dataclass
class Access:
    """How one output's topic is accessed.

    Args:
        output: its name.
        servers: brokers to start from.
        topic: its name.
        identity: the transactional id, and the name of the consumer group that holds the marker.
        options: of the client.
        environment: environment variables that hold options.
        said: the newest thing that the client reported of a connection.
        denied: whether brokers refused the user.
    """

    output: str
    servers: str
    topic: str
    identity: str
    options: Mapping[str, str] = field(default_factory=dict)
    environment: Mapping[str, str] = field(default_factory=dict)
    said: str = ""
    denied: bool = False

    def producer_settings(self, *, transactional: bool) -> dict[str, Any]:
        """Return the settings of a producer; raises as ``secrets``."""
        found = {**_DEFAULTS, **self._common(self.options), "enable.idempotence": True, "delivery.report.only.error": True}
        if transactional:
            return {**found, "transactional.id": self.identity}
        found.pop("transaction.timeout.ms")
        return found

    def consumer_settings(self) -> dict[str, Any]:
        """Return the settings of the consumer that reads the marker, and joins no group; raises as ``secrets``."""
        shared = {name: value for name, value in self.options.items() if name.startswith(_CONNECTION)}
        return {
            **self._common(shared),
            "group.id": self.identity,
            "enable.auto.commit": False,
            "isolation.level": "read_committed",
            "allow.auto.create.topics": False,
        }

    def _common(self, options: Mapping[str, str]) -> dict[str, Any]:
        return {
            "client.id": "tidemark",
            **options,
            **self.secrets(),
            "bootstrap.servers": self.servers,
            "error_cb": self._note,
            # Its lines would go to standard error, with addresses and reasons of their own.
            "log_level": 2,
        }

    def secrets(self) -> dict[str, str]:
        """Return the options whose values are in environment variables.

        Raises:
            DefinitionError: one is not set.
        """
        for option, variable in self.environment.items():
            if not os.environ.get(variable):
                raise DefinitionError(
                    f"the environment variable {variable}, which holds the option {option} of output {self.output!r}, is not set",
                    fix=f"set {variable} where the driver of the job runs",
                    uid=self.output,
                )
        return {option: os.environ[variable] for option, variable in self.environment.items()}

    def error(self, error: KafkaError, *, committed: bool, epoch: int | None = None) -> TidemarkError:
        """Return what to raise for an error of the client; its text has no secret.

        Args:
            error: the client's.
            committed: whether it came while a committed epoch was published.
            epoch: that epoch.
        """
        name = "_AUTHENTICATION" if self.denied else error.name()
        text = self.hidden(error.str())
        detail = f"{text}; {self.said}" if self.said and self.said not in text else text
        place = f"kafka://{self.servers}/{self.topic}"
        again = "; then start the job again, which finishes this epoch first" if committed else ""
        what, fix = self._permanent(name, detail)
        if what:
            return SinkError(what, fix=fix + again, uid=self.output, epoch=epoch, place=place)
        if committed:
            what = f"output {self.output!r} of a committed epoch could not be published: {detail}"
        else:
            what = f"the brokers of output {self.output!r} cannot be reached: {detail}"
        fix = "check that the brokers run and can be reached from this machine, that servers= is right, and security.protocol in options="
        return PublishError(fix=fix + again, what=what, uid=self.output, epoch=epoch, place=place)

    def _permanent(self, name: str, detail: str) -> tuple[str, str]:
        """Return what is wrong and what to do, where trying again does not help; else two empty texts."""
        if name in _NO_TOPIC:
            return (
                f"the topic {self.topic!r} of output {self.output!r} does not exist",
                f"create it, or correct topic=: kafka-topics --bootstrap-server {self.servers} --create --topic {self.topic}",
            )
        if name in _DENIED:
            named = ", ".join(self.environment.values()) or "options_env="
            rights = f"write to the topic {self.topic!r}, use the transactional id {self.identity!r} and read the group {self.identity!r}"
            fix = f"correct the user and the password ({named}), or allow it to {rights}"
            return f"the brokers refuse the user of output {self.output!r}: {detail}", fix
        if name in _REFUSED:
            return (
                f"the topic {self.topic!r} refuses records of output {self.output!r}: {detail}",
                "a compacted topic takes no records without a key, and max.message.bytes bounds them: change the topic's settings",
            )
        if name in _WRONG_SETTING:
            return (f"the options of output {self.output!r} cannot be used: {detail}", "correct options= of tm.kafka_sink(...)")
        return "", ""

    def hidden(self, text: str) -> str:
        """Return a text without the values of secret options."""
        for variable in self.environment.values():
            value = os.environ.get(variable)
            if value:
                text = text.replace(value, HIDDEN)
        return redacted(text)

    def _note(self, error: KafkaError) -> None:
        if error.name() != "_ALL_BROKERS_DOWN":
            self.said = self.hidden(error.str())
            self.denied = self.denied or error.name() in _DENIED
