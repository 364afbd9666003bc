"""A schema registry: the versions of its subjects, by the API that Confluent's, Karapace and Apicurio have."""

from __future__ import annotations

import base64
import json
import re
import ssl
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from http.client import HTTPException, HTTPMessage
from typing import IO, Final
from urllib.error import HTTPError, URLError
from urllib.parse import quote
from urllib.request import HTTPRedirectHandler, Request, build_opener

from tidemark.clock import SYSTEM_CLOCK
from tidemark.errors import DefinitionError, SourceError, SourceUnavailableError, TidemarkError
from tidemark.graph.model.nodes import SourceNode
from tidemark.spark.columns.error_text import first_line
from tidemark.spark.sources.kafka.options import REGISTRY_CREDENTIALS, secret
from tidemark.spark.sources.kafka.references import with_references

TIMEOUT_S: Final = 10.0
"""How long a request may take, seconds."""

PAUSES_S: Final = (0.2, 1.0)
"""How long to wait before a request is made again, seconds."""

_AGAIN: Final = frozenset({408, 425, 429, 500, 502, 503, 504})
_DENIED: Final = frozenset({401, 403})
_NOT_FOUND: Final = 404
_NO_SUBJECT: Final = frozenset({40401, 40402, 40403})
_NO_REGISTRY: Final = "name the address of a schema registry: registry='https://...'"
_TOKEN: Final = re.compile(r"[\x21-\x7e]+")
_ACCEPT: Final = "application/vnd.schemaregistry.v1+json, application/json"


class _NoRedirect(HTTPRedirectHandler):
    """Credentials are for the address that was declared only."""

    def redirect_request(  # noqa: PLR0917 - as the library calls it
        self, req: Request, fp: IO[bytes], code: int, msg: str, headers: HTTPMessage, newurl: str
    ) -> None:
        del req, fp, code, msg, headers, newurl


_OPENER: Final = build_opener(_NoRedirect)


@dataclass(frozen=True)
class WriterSchema:
    """A schema that records are written with: its id in the registry, its kind (``AVRO``), and its text."""

    id: int
    kind: str
    text: str


_known: dict[tuple[str, str], dict[int, WriterSchema]] = {}
"""Versions do not change while a subject exists, so a driver asks once for each: by address and subject, then by number."""


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
            self._headers["Authorization"] = _authorization(variable, source)

    def schemas(self, subjects: Sequence[str], *, others: Sequence[str] = ()) -> Mapping[int, WriterSchema]:
        """Return the schemas of all versions of subjects by their ids, also of versions that are deleted, but not for good.

        Args:
            subjects: to ask for.
            others: of which one at least has to exist, where none of ``subjects`` does.

        Raises:
            SourceUnavailableError: the registry does not answer, or cannot answer now.
            SourceError: it refuses the credentials, is no registry, or has none of the subjects.
        """
        found: dict[int, WriterSchema] = {}
        missing = []
        for subject in subjects:
            numbers = self._numbers(subject)
            if numbers is None:
                missing.append(subject)
            for schema in self._versions(subject, numbers or ()):
                found[schema.id] = schema
        if subjects and len(missing) == len(subjects):
            more = [other for other in others if other not in missing]
            if all(self._numbers(other) is None for other in more):
                raise self._error(
                    f"has no subject {' or '.join([*missing, *more])}",
                    "register the schema, or name the subjects of the records: subjects=['...']",
                )
        return found

    def _numbers(self, subject: str) -> Sequence[int] | None:
        """Return the numbers of a subject's versions, None where there is no such subject."""
        found = self._get(f"/subjects/{quote(subject, safe='')}/versions?deleted=true")
        if found is None:
            return None
        if not isinstance(found, list) or not all(type(number) is int for number in found):
            raise self._no_registry()
        return found

    def _versions(self, subject: str, numbers: Sequence[int]) -> Iterable[WriterSchema]:
        # Jobs of one process share what is known, so a new mapping takes the place of the other.
        known = dict(_known.get((self._url, subject), {}))
        if not known.keys() <= set(numbers):
            # A subject that was deleted for good, and registered again, has other schemas by the same numbers.
            known = {}
        for number in numbers:
            if number not in known:
                version = self._get(_path(subject, number))
                if version is None:
                    continue  # deleted for good since the numbers were asked for
                known[number] = self._schema(self._checked(version))
        _known[self._url, subject] = known
        return known.values()

    def _schema(self, version: Mapping[str, object]) -> WriterSchema:
        kind, text = str(version.get("schemaType") or "AVRO").upper(), str(version["schema"])
        others = self._referenced(version) if kind == "AVRO" else {}
        with suppress(ValueError):  # what is no JSON makes its records malformed
            text = with_references(text, others) if others else text
        return WriterSchema(int(str(version["id"])), kind, text)

    def _referenced(self, version: Mapping[str, object]) -> dict[str, str]:
        """Return the schemas that a schema names, with those that these name, by name."""
        references, found = version.get("references"), dict[str, str]()
        for reference in references if isinstance(references, list) else ():
            if not isinstance(reference, dict) or not {"name", "subject", "version"} <= reference.keys():
                raise self._no_registry()
            subject, number = str(reference["subject"]), reference["version"]
            other = self._get(_path(subject, number))
            if other is None:
                raise self._error(f"has no version {number} of subject {subject}", "register it again")
            found |= {**self._referenced(self._checked(other)), str(reference["name"]): str(self._checked(other)["schema"])}
        return found

    def _checked(self, version: object) -> Mapping[str, object]:
        if not isinstance(version, dict) or type(version.get("id")) is not int or not isinstance(version.get("schema"), str):
            raise self._no_registry()
        return version

    def _get(self, path: str) -> object:
        """Return an answer, None for what the registry does not have."""
        answer = self._repeated(path)
        try:
            found: object = None if answer is None else json.loads(answer)
        except ValueError:
            raise self._no_registry() from None
        return found

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
                self._raise_unless_missing(error)
            return None
        except (URLError, OSError, HTTPException) as error:
            reason = error.reason if isinstance(error, URLError) else error
            if isinstance(reason, ssl.SSLCertVerificationError):
                raise self._error(
                    f"has a certificate that is not trusted: {first_line(reason)}",
                    "set SSL_CERT_FILE to the certificates of its authority where the driver of the job runs",
                ) from None
            raise self._unavailable(first_line(Exception(str(reason) or type(reason).__name__))) from None

    def _raise_unless_missing(self, error: HTTPError) -> None:
        """Raise, unless the registry says that it does not have what was asked for."""
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

    def _no_registry(self) -> TidemarkError:
        return self._error("gives another answer than a registry does", _NO_REGISTRY)

    def _error(self, what: str, fix: str) -> TidemarkError:
        what = f"the schema registry {self._url} of source {self._source.name!r} {what}"
        return SourceError(what, fix=fix, uid=self._source.name, place=self._source.place)


def _path(subject: str, number: object) -> str:
    return f"/subjects/{quote(subject, safe='')}/versions/{quote(str(number), safe='')}?deleted=true"


def _authorization(variable: str, source: SourceNode) -> str:
    # A value that was read from a file may end with a line break.
    credentials = secret(variable, REGISTRY_CREDENTIALS, source).strip("\r\n")
    if ":" in credentials:
        return f"Basic {base64.b64encode(credentials.encode()).decode()}"
    # An HTTP client's error would repeat the token.
    if not _TOKEN.fullmatch(credentials):
        raise DefinitionError(
            f"the environment variable {variable} of source {source.name!r} holds neither user:password nor a token",
            fix="write user:password, or a token of visible ASCII characters",
            uid=source.name,
            place=source.place,
        )
    return f"Bearer {credentials}"


def _error_code(error: HTTPError) -> int | None:
    try:
        found = json.loads(error.read())
    except (ValueError, OSError):
        return None
    code = found.get("error_code") if isinstance(found, dict) else None
    return code if isinstance(code, int) else None
