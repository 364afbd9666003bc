"""Checks of how the values of a topic are decoded."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final, get_args
from urllib.parse import urlsplit

from tidemark.errors import DefinitionError
from tidemark.graph.expressions.ddl import parse_schema
from tidemark.graph.expressions.expression_text import shortened
from tidemark.graph.expressions.name_checks import check_column_names
from tidemark.graph.model.record_decoding import RecordDecoding, ValueFormat
from tidemark.graph.model.secret_options import is_variable

_SUBJECT: Final = re.compile(r"[^\x00-\x1f\x7f]{1,255}")


def decoding_of(
    format: ValueFormat, schema: str | None, place: str, *, registry: object, registry_env: object, subjects: object
) -> RecordDecoding | None:
    """Return how values are decoded, None where they stay as they are.

    Raises:
        DefinitionError: an unknown format, one without a schema or registry, arguments of no use, or an address with a password in it.
    """
    if format not in get_args(ValueFormat):
        formats = ", ".join(get_args(ValueFormat))
        raise DefinitionError(
            f"kafka_source(format={shortened(repr(format))}) is not one of {formats}",
            fix="write format='json' or 'avro', or leave it out and decode the column value with SQL or a function",
            place=place,
        )
    if format != "avro" and any(given is not None for given in (registry, registry_env, subjects)):
        raise DefinitionError(
            f"kafka_source(format={format!r}) reads no schemas of a registry",
            fix="write format='avro', or leave the registry out",
            place=place,
        )
    if (schema is None) != (format == "raw"):
        what = "has no schema" if schema is None else "leaves values as they are"
        raise DefinitionError(
            f"kafka_source(format={format!r}) {what}",
            fix="write schema='zone INT, at TIMESTAMP' with format='json' or format='avro'",
            place=place,
        )
    if schema is None:
        return None
    check_column_names(parse_schema(schema, place=place).names, "kafka_source(schema=...)", place)
    if format != "avro":
        return RecordDecoding(format, schema)
    return RecordDecoding(format, schema, _address(registry, place), _variable(registry_env, place), _subjects(subjects, place))


def _address(registry: object, place: str) -> str:
    try:
        parts = urlsplit(registry) if isinstance(registry, str) else None
        host = parts.hostname if parts is not None and parts.port != 0 else None
    except ValueError:
        parts = host = None
    if parts is None or parts.scheme not in {"http", "https"} or not host or "@" in parts.netloc or parts.query or parts.fragment:
        # What is in front of the host, or behind a question mark, may be a password.
        shown = shortened(repr(registry)) if parts is not None and not {"@", "?"} & set(str(registry)) else "..."
        raise DefinitionError(
            f"kafka_source(registry={shown}) is no address of a schema registry",
            fix="write registry='https://registry:8081'; a user and password go to registry_env=, as the name of a variable",
            place=place,
        )
    return str(registry).rstrip("/")


def _variable(name: object, place: str) -> str | None:
    if name is not None and not is_variable(name):
        raise DefinitionError(
            "kafka_source(registry_env=...) names no environment variable",
            fix="give the name of a variable in capital letters, which holds user:password, or a token",
            place=place,
        )
    return None if name is None else str(name)


def _subjects(given: object, place: str) -> tuple[str, ...]:
    if given is None:
        return ()
    if isinstance(given, str) or not isinstance(given, Sequence) or not given or not all(_is_subject(each) for each in given):
        raise DefinitionError(
            f"kafka_source(subjects={shortened(repr(given))}) is no list of subjects", fix="write subjects=['fares-value']", place=place
        )
    return tuple(given)


def _is_subject(given: object) -> bool:
    return isinstance(given, str) and _SUBJECT.fullmatch(given) is not None
