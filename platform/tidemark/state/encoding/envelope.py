"""The envelope around everything persisted as JSON: kind, format version, checksum, body.

The checksum is SHA-256 over the canonical JSON of kind, format and body: keys sorted, no spaces, UTF-8.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Final

from tidemark.errors import CorruptStoreError, FormatError

FORMAT: Final = 1
_FIELDS = {"kind", "format", "sha256", "body"}
_DAMAGED = (
    "restore the file from a backup of the job store; or give the job another name and its outputs other paths, which reads all input "
    "again, unless it resumes from a savepoint of this one: tm.run(job, restore=tm.Restore('SAVEPOINT', job='NAME')) "
    "(--restore SAVEPOINT --restore-of NAME); nothing was changed and no output was written"
)


def canonical(value: object) -> bytes:
    """Return the one JSON text of a value."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False).encode("utf-8", "surrogatepass")


def sha256(data: bytes) -> str:
    """Return the checksum of bytes as hexadecimal text."""
    return hashlib.sha256(data).hexdigest()


def encode_envelope(kind: str, body: Mapping[str, object]) -> bytes:
    """Return an object's bytes: the body in its envelope."""
    content = canonical({"kind": kind, "format": FORMAT, "body": body})
    return content[:-1] + _end(sha256(content))


def decode_envelope(data: bytes, *, kind: str | tuple[str, ...], path: str) -> tuple[str, Mapping[str, object]]:
    """Return the kind and body of an object's bytes.

    Args:
        data: the bytes as they were stored.
        kind: the kind or kinds that may be there.
        path: where they were stored, for the error.

    Raises:
        FormatError: a newer release wrote it; it is not changed.
        CorruptStoreError: empty, cut short, not JSON, of another kind, or not matching its checksum.
    """
    try:
        content = json.loads(data, parse_constant=_refuse_constant)
    except (ValueError, RecursionError) as error:
        what = "is empty" if not data else "is not whole JSON"
        raise damaged(what, path) from error
    if not isinstance(content, dict):
        raise damaged("is not a record", path)
    version = content.get("format")
    if isinstance(version, int) and version > FORMAT:
        raise newer_format(version, path)
    if set(content) != _FIELDS or not isinstance(content["body"], dict):
        raise damaged("is not a record", path)
    stated = content.pop("sha256")
    if not _agrees(stated, data, content) or version != FORMAT or isinstance(version, bool):
        raise damaged("does not match its checksum", path)
    found = content["kind"]
    if found not in ((kind,) if isinstance(kind, str) else kind):
        raise damaged(f"is of kind {found!r}", path)
    return found, content["body"]


def damaged(what: str, path: str, *, fix: str = _DAMAGED) -> CorruptStoreError:
    """Return the error that a stored object is not as it was written."""
    return CorruptStoreError(f"{path} {what}", fix=fix, place=path)


def newer_format(version: int, path: str) -> FormatError:
    """Return the error that a newer release wrote an object."""
    return FormatError(
        f"{path} has format {version}, and this release reads up to {FORMAT}",
        fix="run the job with the release that wrote it, or a newer one",
        place=path,
    )


def _agrees(stated: object, data: bytes, content: object) -> bool:
    """Return whether a checksum is that of an object's content, given as its bytes and as its decoded fields without the checksum."""
    # As ``encode_envelope`` writes it, the content is the text before the checksum. Another layout has the same checksum.
    if isinstance(stated, str) and data.endswith(end := _end(stated)) and sha256(data[: -len(end)] + b"}") == stated:
        return True
    try:
        return sha256(canonical(content)) == stated
    except ValueError:  # 1e999 is JSON, and no number
        return False


def _end(checksum: str) -> bytes:
    """Return how an object ends: of its four keys the checksum's comes last."""
    return f',"sha256":"{checksum}"}}'.encode("utf-8", "surrogatepass")


def _refuse_constant(text: str) -> object:
    raise ValueError(f"{text} is not JSON")
