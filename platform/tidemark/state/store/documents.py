"""Small checksummed files that each hold one dataclass: read, overwritten, or created once."""

from __future__ import annotations

from typing import TypeVar

from tidemark.errors import CorruptStoreError
from tidemark.state.encoding.codec import from_jsonable, to_jsonable
from tidemark.state.encoding.envelope import decode_envelope, encode_envelope
from tidemark.state.store.store import JobStore

T = TypeVar("T")


def read_document(store: JobStore, path: str, *, kind: str, form: type[T]) -> T | None:
    """Return a file's content, None if there is none.

    Args:
        store: the store at the job's folder.
        path: of the file.
        kind: what its envelope must say.
        form: the dataclass that it holds.

    Raises:
        CorruptStoreError: the file is damaged.
        FormatError: a newer release wrote it.
    """
    try:
        data = store.get(path)
    except FileNotFoundError:
        return None
    shown = str(store.location.joined(path))
    _, body = decode_envelope(data, kind=kind, path=shown)
    return from_jsonable(form, body, path=shown)


def read_intact_document(store: JobStore, path: str, *, kind: str, form: type[T]) -> T | None:
    """Return a file's content as ``read_document`` does; None also if it is damaged, for files that nothing depends on.

    Raises:
        FormatError: a newer release wrote it.
    """
    try:
        return read_document(store, path, kind=kind, form=form)
    except CorruptStoreError:
        return None


def write_document(store: JobStore, path: str, *, kind: str, value: object) -> None:
    """Write a file, replacing an older one."""
    store.put(path, encode_envelope(kind, to_jsonable(value)))


def create_document(store: JobStore, path: str, *, kind: str, value: object) -> bool:
    """Write a file if there is none; return False if there is another one.

    True also if exactly this content exists already: a put whose response was lost, and which was retried.
    """
    data = encode_envelope(kind, to_jsonable(value))
    try:
        store.create(path, data)
    except FileExistsError:
        try:
            return store.get(path) == data
        except FileNotFoundError:
            return False
    return True
