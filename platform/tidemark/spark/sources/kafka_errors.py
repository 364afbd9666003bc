"""Errors of Spark's Kafka connector: it is missing, brokers refuse it, or Kafka no longer has the records to read next."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Final

import pyspark

from tidemark.errors import SourceError
from tidemark.graph.model.nodes import SourceNode
from tidemark.graph.model.source_specs import FormatSpec
from tidemark.spark.sources.intake_limits import KAFKA
from tidemark.state.encoding.redaction import redacted

_LOST: Final = re.compile(r"Some data may have been lost because they are not available in Kafka.*?Reason:\s*(?P<reason>[^\n]+)", re.DOTALL)
_NO_CONNECTOR: Final = re.compile(
    r"Failed to find (?:the )?data source|DATA_SOURCE_NOT_FOUND|[Dd]eploy the application|ClassNotFoundException"
)
_CONNECTOR: Final = "org.apache.spark:spark-sql-kafka-0-10_2.13"
_NO_TOPIC: Final = re.compile(r"UnknownTopicOrPartitionException|Topic \S+ not found|does not host this topic-partition")
_REFUSED: Final = re.compile(
    r"org\.apache\.kafka\.common\.errors\.(?P<kind>\w*(?:Authentication|Authorization|IllegalSaslState)\w*Exception)"
)
_NO_CLIENT: Final = re.compile(r"KafkaException: Failed to (?:construct kafka consumer|create new KafkaAdminClient)")
_PASSING: Final = re.compile(
    r"No resolvable bootstrap urls|java\.net\.(?!URISyntax|MalformedURL)\w+Exception|Too many open files"
    r"|Cannot (?:locate|contact any|get) KDC|Mechanism level: [^)]*(?:refused|timed out|unreachable)"
)
"""Names, servers of logins or files that are not to be had at this moment: a retry may help."""


def connector_missing(spec: object, text: str) -> str | None:
    """Return the fix where Spark cannot open a source since the session lacks the jars of Kafka's connector; None for other errors.

    Args:
        spec: of the source.
        text: of Spark's error.
    """
    if not isinstance(spec, FormatSpec) or spec.format.lower() != KAFKA or not _NO_CONNECTOR.search(text):
        return None
    return (
        "install Kafka's connector: `tidemark connectors install kafka`; or give the session "
        f"spark.jars.packages={_CONNECTOR}:{pyspark.__version__} (`--conf` of `tidemark run` and "
        "`tidemark submit`, `.config(...)` of a session of yours), or its four jars in spark.jars, which docs/how-to/kafka.md lists"
    )


def kafka_error(error: BaseException, sources: Iterable[SourceNode]) -> SourceError | None:
    """Return the error to raise where records or topics no longer exist, or a login is refused, None for other errors.

    A retry does not help, so the error is not retryable. Where several sources read Kafka, the error names the one whose
    topics it mentions.

    Args:
        error: of Spark.
        sources: of the job.
    """
    text = redacted(str(error))
    kafka = [source for source in sources if isinstance(source.spec, FormatSpec) and source.spec.format.lower() == KAFKA]
    if found := _LOST.search(text):
        reason = re.sub(r"\s*SQLSTATE: \w+$", "", found["reason"].strip()).rstrip(".")
        what = f"Kafka no longer has records that come next: {reason}"
        fix = (
            "restore a savepoint from which on Kafka still has all records, or set the source's option failOnDataLoss='false' "
            "(kafka_source: on_loss='skip'): it continues with the records that are left, and the rest is missing from the results; then "
            "give the topic a longer retention.ms. Of a topic that was deleted and made again, kafka_source(on_remade='restart') reads all "
            "records"
        )
    elif kafka and _NO_TOPIC.search(text):
        reason = text
        named = ", ".join(topic for source in kafka for topic in _topics(source))
        what = f"Kafka has no such topic or partition{f': {named}' if named else ''}"
        fix = "create the topic, or correct topics= of kafka_source, or the source's option 'subscribe'"
    elif kafka and ((refused := _REFUSED.search(text)) or _NO_CLIENT.search(text)) and not _PASSING.search(text):
        reason = text
        # What brokers and Java say of a login may repeat it.
        what = (
            f"the brokers refuse Kafka's client ({refused['kind']})"
            if refused
            else "Kafka's client cannot be made with the source's options"
        )
        fix = (
            "correct kafka.security.protocol, the kafka.sasl and kafka.ssl options, and the variables of options_env=; "
            "or give the user the right to read the topic"
        )
    else:
        return None
    source = _meant(kafka, reason)
    return SourceError(what, fix=fix, uid=source.name if source else None, place=source.place if source else None)


def _meant(kafka: Sequence[SourceNode], reason: str) -> SourceNode | None:
    """Return the only source whose partitions the reason names, or the only source."""
    named = [source for source in kafka if any(re.search(rf"(?<![\w.-]){re.escape(topic)}-\d", reason) for topic in _topics(source))]
    return next((found[0] for found in (named, kafka) if len(found) == 1), None)


def _topics(source: SourceNode) -> list[str]:
    """Return the topics that a source names; none where it has a pattern."""
    options = source.spec.options if isinstance(source.spec, FormatSpec) else {}
    given = {key.lower(): str(value) for key, value in options.items()}
    named = re.findall(r'"([^"]+)"\s*:', given.get("assign", ""))
    return named or [topic.strip() for topic in given.get("subscribe", "").split(",") if topic.strip()]
