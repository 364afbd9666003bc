"""A schema registry: the versions of its subjects, by the API that Confluent's, Karapace and Apicurio have."""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from http.client import HTTPException, HTTPMessage
from typing import IO, Final, TypeVar
from urllib.error import HTTPError, URLError
from urllib.parse import quote
from urllib.request import HTTPRedirectHandler, Request, build_opener

import msgspec

from tidemark.clock import SYSTEM_CLOCK
from tidemark.errors import SourceError, SourceUnavailableError, TidemarkError
from tidemark.graph.model.nodes import SourceNode
from tidemark.spark.columns.error_text import first_line
from tidemark.spark.sources.kafka.options import secret
from tidemark.spark.sources.kafka.references import with_references

T = TypeVar("T")

TIMEOUT_S: Final = 10.0
"""How long a request may take, seconds."""

PAUSES_S: Final = (0.2, 1.0)
"""How long to wait before a request is made again, seconds."""

_AGAIN: Final = frozenset({408, 425, 429, 500, 502, 503, 504})
_DENIED: Final = frozenset({401, 403})
_NOT_FOUND: Final = 404
_NO_SUBJECT: Final = frozenset({40401, 40402, 40403})
_NO_REGISTRY: Final = "name the address of a schema registry: registry='https://...'"
_ACCEPT: Final = "application/vnd.schemaregistry.v1+json, application/json"


class _NoRedirect(HTTPRedirectHandler):
    """Credentials are for the address that was declared only."""

    def redirect_request(  # noqa: PLR0917 - as the library calls it
        self, req: Request, fp: IO[bytes], code: int, msg: str, headers: HTTPMessage, newurl: str
    ) -> None:
        del req, fp, code, msg, headers, newurl


_OPENER: Final = build_opener(_NoRedirect)


class _Reference(msgspec.Struct):
    """A type of another subject that a schema names."""

    name: str
    subject: str
    version: int


class _Version(msgspec.Struct):
    """A version of a subject, as the registry shows it."""

    id: int
    schema: str
    schemaType: str = "AVRO"  # noqa: N815 - the registry's name
    references: list[_Reference] | None = None


class _Error(msgspec.Struct):
    """What a registry answers with where it does not have something."""

    error_code: int


@dataclass(frozen=True)
class WriterSchema:
    """A schema that records are written with: its id in the registry, its kind (``AVRO``), and its text."""

    id: int
    kind: str
    text: str


_known: dict[tuple[str, str, int], WriterSchema] = {}
"""Versions never change, so a driver asks once for each: by address, subject and number."""


class SchemaRegistry:
    """A registry, asked by the driver.

    Args:
        url: its address.
        variable: names the environment variable with credentials, None where none are needed.
        source: that reads it, for errors.
    """

    def __init__(self, url: str, variable: str | None, source: SourceNode) -> None:
        self._url, self._source = url, source
        self._headers = {"Accept": _ACCEPT}
        if variable is not None:
            self._headers["Authorization"] = _authorization(secret(variable, "the credentials of the registry", source))

    def schemas(self, subjects: Sequence[str]) -> Mapping[int, WriterSchema]:
        """Return the schemas of all versions of subjects by their ids, also of versions that are deleted, but not for good.

        Raises:
            SourceUnavailableError: the registry does not answer, or cannot answer now.
            SourceError: it refuses the credentials, is no registry, or has none of the subjects.
        """
        found: dict[int, WriterSchema] = {}
        missing = []
        for subject in subjects:
            versions = self._get(f"/subjects/{quote(subject, safe='')}/versions?deleted=true", list[int])
            if versions is None:
                missing.append(subject)
                continue
            for version in versions:
                schema = self._version(subject, version)
                found[schema.id] = schema
        if subjects and len(missing) == len(subjects):
            raise self._error(
                f"has no subject {' or '.join(missing)}", "register the schema, or name the subjects of the records: subjects=['...']"
            )
        return found

    def _version(self, subject: str, number: int) -> WriterSchema:
        key = (self._url, subject, number)
        if key not in _known:
            version = self._required(subject, number)
            text = with_references(version.schema, self._referenced(version)) if version.references else version.schema
            _known[key] = WriterSchema(version.id, version.schemaType.upper(), text)
        return _known[key]

    def _referenced(self, version: _Version) -> dict[str, str]:
        """Return the schemas that a schema names, with those that these name, by name."""
        found: dict[str, str] = {}
        for reference in version.references or ():
            other = self._required(reference.subject, reference.version)
            found |= {**self._referenced(other), reference.name: other.schema}
        return found

    def _required(self, subject: str, number: int) -> _Version:
        found = self._get(f"/subjects/{quote(subject, safe='')}/versions/{number}?deleted=true", _Version)
        if found is None:
            raise self._error(f"has no version {number} of subject {subject}", "register it again")
        return found

    def _get(self, path: str, kind: type[T]) -> T | None:
        """Return an answer, None for what the registry does not have."""
        answer = self._repeated(path)
        try:
            return None if answer is None else msgspec.json.decode(answer, type=kind)
        except msgspec.DecodeError:
            raise self._error("gives another answer than a registry does", _NO_REGISTRY) from None

    def _repeated(self, path: str) -> bytes | None:
        for pause in PAUSES_S:
            try:
                return self._asked(path)
            except SourceUnavailableError:
                SYSTEM_CLOCK.sleep(pause)
        return self._asked(path)

    def _asked(self, path: str) -> bytes | None:
        # The address begins with http or https.
        request = Request(f"{self._url}{path}", headers=self._headers)  # noqa: S310
        try:
            with _OPENER.open(request, timeout=TIMEOUT_S) as answer:
                return bytes(answer.read())
        except HTTPError as error:
            with error:
                return self._refused(error)
        except (URLError, OSError, HTTPException) as error:
            reason = error.reason if isinstance(error, URLError) else error
            raise self._unavailable(first_line(Exception(str(reason) or type(reason).__name__))) from None

    def _refused(self, error: HTTPError) -> None:
        """Return None where the registry does not have what was asked for; raise for other answers."""
        if error.code in _AGAIN:
            raise self._unavailable(f"HTTP status {error.code}")
        if error.code in _DENIED:
            raise self._error(
                f"refuses access (HTTP status {error.code})",
                "correct the credentials in the variable that registry_env= names, or what the user may read",
            )
        if error.code == _NOT_FOUND and _error_code(error) in _NO_SUBJECT:
            return
        raise self._error(f"answers with HTTP status {error.code}", _NO_REGISTRY)

    def _unavailable(self, why: str) -> TidemarkError:
        return SourceUnavailableError(
            f"the schema registry {self._url} of source {self._source.name!r} does not answer: {why}",
            fix="start the registry, or correct its address; the epoch is read again",
            uid=self._source.name,
            place=self._source.place,
        )

    def _error(self, what: str, fix: str) -> TidemarkError:
        what = f"the schema registry {self._url} of source {self._source.name!r} {what}"
        return SourceError(what, fix=fix, uid=self._source.name, place=self._source.place)


def _authorization(credentials: str) -> str:
    if ":" in credentials:
        return f"Basic {base64.b64encode(credentials.encode()).decode()}"
    return f"Bearer {credentials}"


def _error_code(error: HTTPError) -> int | None:
    try:
        return msgspec.json.decode(error.read(), type=_Error).error_code
    except (msgspec.DecodeError, OSError):
        return None
