"""Secrets of a source of Kafka are in no file of the job store, no log of driver or JVM, no status, no error."""

from __future__ import annotations

import logging
import traceback
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest
from click.testing import CliRunner

import tidemark as tm
from tests.kafka.broker import NEEDS_JARS, Broker, Topics
from tests.kafka.fares import START
from tests.kafka.readers import TIMED
from tidemark.cli.program.main import main
from tidemark.errors import SourceError, TidemarkError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [NEEDS_JARS, pytest.mark.spark, pytest.mark.slow]

MARKER: Final = "m4rker-s3cret"
SECRETS: Final = {
    "kafka.sasl.jaas.config": (
        "FARES_JAAS",
        f'org.apache.kafka.common.security.plain.PlainLoginModule required username="ada" password="{MARKER}";',
    ),
    "kafka.ssl.key.password": ("FARES_KEY", f"{MARKER}-key"),
    "kafka.ssl.keystore.password": ("FARES_KEYSTORE", f"{MARKER}-keystore"),
    "kafka.ssl.truststore.password": ("FARES_TRUSTSTORE", f"{MARKER}-truststore"),
    "kafka.ssl.keystore.key": ("FARES_PEM", f"-----BEGIN PRIVATE KEY-----{MARKER}-----END PRIVATE KEY-----"),
}
"""Every option of Kafka's clients whose value is secret, with its variable and the value."""

NOT_RETRIED: Final = "a broker that speaks no SASL"
WRONG: Final[Mapping[str, Mapping[str, str]]] = {
    NOT_RETRIED: {"kafka.security.protocol": "SASL_PLAINTEXT", "kafka.sasl.mechanism": "PLAIN"},
    "a login that is none": {"kafka.security.protocol": "SASL_PLAINTEXT", "kafka.sasl.mechanism": "SCRAM-SHA-256"},
    "a key that is none": {"kafka.security.protocol": "SSL", "kafka.ssl.keystore.type": "PEM"},
    "a broker that speaks no TLS": {"kafka.security.protocol": "SSL"},
}
IMPATIENT: Final = {
    "kafka.request.timeout.ms": "500",
    "kafka.default.api.timeout.ms": "500",
    "kafka.socket.connection.setup.timeout.ms": "500",
}
"""Where no answer is waited for."""


def job_of(broker: Broker, folder: Path, options: Mapping[str, str], secret: Mapping[str, str]) -> tm.Job:
    spec = tm.kafka_source(servers=broker.address, topics="secretive", options=options, options_env=secret)
    records = tm.source("records", spec, watermarks=TIMED)
    return tm.Job("secretive", {"rows": tm.delta(records.select("offset"), str(folder / "rows"))}, store=str(folder / "store"))


def jvm_log(spark: SparkSession) -> str:
    """Return what the JVM has printed so far."""
    jvm: Any = spark._jvm  # noqa: SLF001
    process = jvm.java.lang.ProcessHandle.current().pid()
    return Path(f"/proc/{process}/fd/2").read_text(errors="replace")


@pytest.fixture
def secrets(monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """The options and their variables, which are set."""
    for variable, value in SECRETS.values():
        monkeypatch.setenv(variable, value)
    return {option: variable for option, (variable, _) in SECRETS.items()}


def test_nothing_that_a_job_leaves_shows_them(
    topics: Topics, broker: Broker, spark: SparkSession, secrets: dict[str, str], *, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    # The library between Python and Java logs all that it sends below this level.
    caplog.set_level(logging.INFO)
    caplog.set_level(logging.DEBUG, logger="tidemark")
    topics.create("secretive", 1)
    topics.send("secretive", 0, "x", at=START)
    topics.flush()
    # A plain connection needs none of them, so that the job runs with all.
    job = job_of(broker, tmp_path, {}, secrets)
    assert tm.run(job, spark=spark, handle_signals=False).rows_in == 1
    tm.savepoints_of(job).take("kept")
    said = [caplog.text, job.explain(), repr(job), jvm_log(spark)]
    store = str(tmp_path / "store")
    for name, options in WRONG.items():
        wrong = job_of(broker, tmp_path, options if name == NOT_RETRIED else {**options, **IMPATIENT}, secrets)
        with pytest.raises(TidemarkError) as raised:
            tm.run(wrong, spark=spark, handle_signals=False)
        if name == NOT_RETRIED:
            assert isinstance(raised.value, SourceError)
            assert "the brokers refuse Kafka's client (IllegalSaslStateException)" in raised.value.what
            assert (raised.value.transient, raised.value.uid) == (False, "records")
        said += ["".join(traceback.format_exception(raised.value)), repr(raised.value.__dict__)]
        for words in (
            ["status", "secretive"],
            ["status", "secretive", "--json"],
            ["history", "secretive"],
            ["savepoint", "list", "secretive"],
        ):
            shown = CliRunner().invoke(main, [*words, "--store", store])
            assert shown.exit_code in (0, 1), shown.output
            said.append(shown.output)
    said += [caplog.text, jvm_log(spark)]
    assert [text for text in said if MARKER in text] == []
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert any(path.name == "status.json" for path in files)
    assert [path for path in files if MARKER.encode() in path.read_bytes()] == []
