"""A schema registry: the versions of its subjects, by the API that Confluent's, Karapace and Apicurio have."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from http.client import HTTPException, HTTPMessage
from typing import IO, Final
from urllib.error import HTTPError, URLError
from urllib.parse import quote
from urllib.request import HTTPRedirectHandler, Request, build_opener

from tidemark.clock import SYSTEM_CLOCK
from tidemark.errors import SourceError, SourceUnavailableError, TidemarkError
from tidemark.graph.model.nodes import SourceNode
from tidemark.spark.columns.error_text import first_line
from tidemark.spark.sources.kafka.options import secret
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
            versions = self._get(f"/subjects/{quote(subject, safe='')}/versions?deleted=true")
            if versions is None:
                missing.append(subject)
            elif not isinstance(versions, list):
                raise self._no_registry()
            for version in versions or ():
                schema = self._version(subject, int(version))
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
            others = self._referenced(version)
            text = with_references(str(version["schema"]), others) if others else str(version["schema"])
            _known[key] = WriterSchema(int(str(version["id"])), str(version.get("schemaType") or "AVRO").upper(), text)
        return _known[key]

    def _referenced(self, version: Mapping[str, object]) -> dict[str, str]:
        """Return the schemas that a schema names, with those that these name, by name."""
        references, found = version.get("references"), dict[str, str]()
        for reference in references if isinstance(references, list) else ():
            other = self._required(str(reference["subject"]), int(reference["version"]))
            found |= {**self._referenced(other), str(reference["name"]): str(other["schema"])}
        return found

    def _required(self, subject: str, number: int) -> Mapping[str, object]:
        found = self._get(f"/subjects/{quote(subject, safe='')}/versions/{number}?deleted=true")
        if found is None:
            raise self._error(f"has no version {number} of subject {subject}", "register it again")
        if not isinstance(found, dict) or not {"id", "schema"} <= found.keys():
            raise self._no_registry()
        return found

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


def _authorization(credentials: str) -> str:
    if ":" in credentials:
        return f"Basic {base64.b64encode(credentials.encode()).decode()}"
    return f"Bearer {credentials}"


def _error_code(error: HTTPError) -> int | None:
    try:
        found = json.loads(error.read())
    except (ValueError, OSError):
        return None
    code = found.get("error_code") if isinstance(found, dict) else None
    return code if isinstance(code, int) else None
