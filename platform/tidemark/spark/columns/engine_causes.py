"""Finds the cause of a Spark error in the text of its causes, with a fix: for the one line that users read. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from tidemark.state.encoding.redaction import redacted
from tidemark.state.encoding.system_errors import Cause, system_cause

_MEMORY: Final = (
    "give the driver more memory (`--conf spark.driver.memory=4g`; on a cluster spark.executor.memory), or let an epoch read less "
    "(max_files_per_epoch, maxOffsetsPerTrigger)"
)
_KNOWN: Final[tuple[tuple[re.Pattern[str], str, str], ...]] = (
    (re.compile(r"java\.lang\.OutOfMemoryError:? ?(?P<detail>[^\n]{0,80})"), "Java is out of memory", _MEMORY),
    (
        re.compile(r"\bMemoryError\b|Python worker exited unexpectedly"),
        "a Python worker has ended, as it does when it is out of memory",
        _MEMORY,
    ),
    (
        re.compile(r"Answer from Java side is empty|while trying to connect to the Java server"),
        "Spark's Java process has ended",
        "see its last lines (`tidemark logs`, or above); where the system killed it, give the machine more memory, or Spark less",
    ),
    (
        re.compile(
            r"(?P<detail>Could not find a '\w+' entry in the JAAS configuration|[^\n]{0,40}JAAS[^\n]{0,80}"
            r"|Unable to find LoginModule[^\n]{0,80})"
        ),
        "the login to Kafka is not configured",
        "set the source's options 'kafka.security.protocol', 'kafka.sasl.mechanism' and 'kafka.sasl.jaas.config' (docs/how-to/kafka.md)",
    ),
    (
        re.compile(r"(?:SaslAuthenticationException|SslAuthenticationException|LoginException):? ?(?P<detail>[^\n]{0,120})"),
        "Kafka refuses the login",
        "correct user, password or certificate in the source's options 'kafka.sasl.…' or 'kafka.ssl.…'",
    ),
    (
        re.compile(
            r"UnknownHostException: (?P<detail>[^\s:]{1,255})|No resolvable bootstrap urls[^\n]{0,160}"
            r"|Couldn't resolve server (?P<server>\S{1,255})|Name or service not known|[Tt]emporary failure in name resolution"
        ),
        "a host name does not resolve",
        "correct the name (Kafka: the option 'kafka.bootstrap.servers'; files: the address), or the machine's DNS",
    ),
    (
        re.compile(
            r"Connection to node -?\d+ [^\n]{0,120}could not be established|Timed out waiting for a node assignment"
            r"|java\.net\.ConnectException"
        ),
        "no service answers at the address",
        "check that the service runs and can be reached from this machine, and that its address and port are right",
    ),
)
_CAUSED: Final = re.compile(r"^Caused by: (?P<cause>[^\n]+)", re.MULTILINE)


def whole_text(error: BaseException) -> str:
    """Return an error's whole text, with its causes and their Java traces, without credentials."""
    return redacted("\n".join(_texts(error)))


def engine_cause(text: str) -> Cause | None:
    r"""Return the cause of an error, from its whole text; None where the text has no known one.

    >>> engine_cause("Job aborted\nCaused by: java.net.UnknownHostException: kafka-1").what
    'a host name does not resolve (kafka-1)'
    """
    for pattern, what, fix in _KNOWN:
        found = pattern.search(text)
        if found is not None:
            groups = found.groupdict()
            detail = (groups.get("detail") or groups.get("server") or "").strip(" .:")
            return Cause(f"{what} ({detail})" if detail else what, fix)
    return system_cause(text)


def root_cause(text: str) -> str:
    r"""Return the last cause that a Java trace names, in one line; empty where it names none.

    >>> root_cause("Job aborted.\n\tat a.b\nCaused by: java.lang.A: x\n\tat c.d\nCaused by: java.lang.B: y")
    'java.lang.B: y'
    """
    found = _CAUSED.findall(text)
    return found[-1].strip() if found else ""


def _texts(error: BaseException | None, depth: int = 10) -> Iterator[str]:
    while error is not None and depth:
        yield str(error)
        # PySpark keeps Java's trace, which has the causes, apart from the text.
        trace = getattr(error, "_stackTrace", None)
        if isinstance(trace, str):
            yield trace
        error, depth = error.__cause__ or error.__context__, depth - 1
