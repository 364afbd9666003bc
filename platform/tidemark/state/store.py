"""The job store: objects by path, on a local disk or an object store, with put-if-absent.

Everything Tidemark keeps about jobs goes through here, by ``obstore``; a put is atomic on all of its backends, and a create
succeeds for one writer only. On object stores that needs conditional puts (S3, GCS and Azure have them).
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

import obstore
from obstore.exceptions import AlreadyExistsError, BaseError
from obstore.store import LocalStore, ObjectStore

from tidemark.errors import StoreError, TidemarkError, UnknownStoreError
from tidemark.locations import Location
from tidemark.state.object_stores import lacks_bucket, open_remote, remedy, said
from tidemark.state.redaction import without_secrets

_WRITTEN_AT_ONCE = 8 * 1024 * 1024
_NAMED = 10
_CREATIONS = 5
_TROUBLE = (BaseError, OSError, ValueError)


class ListedFile(NamedTuple):
    """One object of a listing; ``path`` is relative to the store it was listed in."""

    path: str
    size: int
    last_modified_ms: int


@dataclass(frozen=True)
class JobStore:
    """A folder of objects; ``open`` makes one. Paths are relative to it, with ``/`` between their parts.

    ``objects`` is the obstore store at the root and ``prefix`` the folder inside it that this view shows.
    """

    location: Location
    objects: ObjectStore
    prefix: str = ""

    @classmethod
    def open(cls, location: str | Location, *, make: bool = True) -> JobStore:
        """Open a root; a local folder is made if it is missing.

        Args:
            location: where it is.
            make: without it, a folder that is missing is an error: whoever only reads has mistaken the place then. On an object store
                that is one without objects.

        Raises:
            DefinitionError: the location cannot be read as one.
            UnknownStoreError: the folder is missing, and not to be made.
            StoreError: the root cannot be reached or made.
        """
        root = Location.parse(location) if isinstance(location, str) else location
        if not make and root.scheme == "file" and not Path(root.path).is_dir():
            raise UnknownStoreError(
                f"there is nothing at {root}: no such folder",
                fix=f"give a place that is there, with jobs or what was exported; {_near(Path(root.path))}",
                place=str(root),
            )
        with _reported("open", root):
            if root.scheme == "file":
                # Folders emptied by a deletion go with it, as they do on object stores.
                return cls(root, LocalStore(root.path, mkdir=True, automatic_cleanup=True))
            opened = cls(root, open_remote(root))
        if not make and opened.is_empty():
            raise UnknownStoreError(
                f"there is nothing at {root}: no object's name begins so",
                fix="give a place that is there, with jobs or what was exported",
                place=str(root),
            )
        return opened

    @property
    def uri(self) -> str:
        """The store's own address: ``file:///…``, ``s3://…``, ``gs://…``, ``az://…``."""
        return self.location.uri

    def spark_uri(self, path: str = "") -> str:
        """Return an object's address as Spark reads it, such as ``s3a://…``; without a path, the store's own."""
        return self.location.joined(path).spark_uri

    def at(self, prefix: str) -> JobStore:
        """Return a view of one folder, which need not exist."""
        return JobStore(self.location.joined(prefix), self.objects, self._key(prefix.strip("/")))

    def beside(self, name: str) -> JobStore:
        """Return a view of the folder of that name beside this one: another job's of the same store."""
        above, _, own = self.prefix.rpartition("/")
        path = self.location.path.removesuffix(own) + name
        return JobStore(replace(self.location, path=path), self.objects, f"{above}/{name}" if above else name)

    @property
    def above(self) -> JobStore:
        """A view of the folder that this one lies in: the root store, of a job's folder."""
        above, _, own = self.prefix.rpartition("/")
        path = self.location.path.removesuffix(own).rstrip("/")
        return JobStore(replace(self.location, path=path), self.objects, above)

    def get(self, path: str) -> bytes:
        """Return an object's bytes.

        Raises:
            FileNotFoundError: there is no such object.
            StoreError: it cannot be read.
        """
        with _reported("read", self._at(path), passing=(FileNotFoundError,)):
            return bytes(obstore.get(self.objects, self._key(path)).bytes())

    def tail(self, path: str, length: int) -> tuple[bytes, int]:
        """Return the last ``length`` bytes of an object (all of it if it is shorter) and its whole size.

        Raises:
            FileNotFoundError: there is no such object.
            StoreError: it cannot be read.
        """
        with _reported("read", self._at(path), passing=(FileNotFoundError,)):
            try:
                found = obstore.get(self.objects, self._key(path), options={"range": {"suffix": length}})
            except FileNotFoundError:
                raise
            except BaseError:
                # Of an empty object S3 gives no range.
                if obstore.head(self.objects, self._key(path))["size"]:
                    raise
                return b"", 0
            return bytes(found.bytes()), found.meta["size"]

    def chunks(self, path: str, size: int = _WRITTEN_AT_ONCE) -> Iterator[bytes]:
        """Yield an object's bytes piece by piece, each of at least ``size`` but the last.

        Raises:
            FileNotFoundError: there is no such object.
            StoreError: it cannot be read.
        """
        with _reported("read", self._at(path), passing=(FileNotFoundError,)):
            for chunk in obstore.get(self.objects, self._key(path)).stream(min_chunk_size=size):
                yield bytes(chunk)

    def put_chunks(self, path: str, chunks: Iterable[bytes]) -> None:
        """Write an object from its pieces, replacing an older one; when the pieces end in an error, what is there then is no object to use.

        Raises:
            StoreError: it cannot be written.
        """
        with (
            _reported("write", self._at(path), passing=(FileNotFoundError, TidemarkError)),
            obstore.open_writer(self.objects, self._key(path), buffer_size=_WRITTEN_AT_ONCE) as writer,
        ):
            for chunk in chunks:
                writer.write(chunk)

    def put(self, path: str, data: bytes) -> None:
        """Write an object whole, replacing an older one at once: readers see the old or the new."""
        with _reported("write", self._at(path)):
            obstore.put(self.objects, self._key(path), data, use_multipart=False)

    def create(self, path: str, data: bytes) -> None:
        """Write an object if there is none.

        Of several writers at once one succeeds. After a StoreError the object may have been written or not.

        Raises:
            FileExistsError: there is one already; it is untouched.
            StoreError: it cannot be written.
        """
        with _reported("write", self._at(path), passing=(FileExistsError,)):
            for tried in range(1, _CREATIONS + 1):
                try:
                    obstore.put(self.objects, self._key(path), data, mode="create", use_multipart=False)
                except AlreadyExistsError as error:
                    # S3 says so, too, while another's write or deletion of it is at hand, after which there may be none.
                    if self.exists(path):
                        raise FileExistsError(str(self._at(path))) from error
                    if tried == _CREATIONS:
                        raise
                else:
                    return

    def is_empty(self) -> bool:
        """Say whether there is no object."""
        with _reported("list", self.location):
            return not any(obstore.list(self.objects, self.prefix or None, chunk_size=1))

    def exists(self, path: str) -> bool:
        """Say whether there is such an object."""
        with _reported("read", self._at(path)):
            try:
                obstore.head(self.objects, self._key(path))
            except FileNotFoundError:
                return False
        return True

    def modified_ms(self, path: str) -> int | None:
        """Return when an object was written, None where there is none."""
        with _reported("read", self._at(path)):
            try:
                return int(obstore.head(self.objects, self._key(path))["last_modified"].timestamp() * 1000)
            except FileNotFoundError:
                return None

    def list(self, prefix: str = "") -> tuple[ListedFile, ...]:
        """Return all objects under a folder, at any depth, sorted by path; none where the folder is missing."""
        folder = self._key(prefix.strip("/"))
        cut = len(self.prefix) + 1 if self.prefix else 0
        with _reported("list", self._at(prefix)):
            found = obstore.list(self.objects, folder or None).collect()
            if self.location.scheme != "file":
                found = [item for item in found if item["size"] or not self._is_mark(item["path"], folder)]
        files = (ListedFile(item["path"][cut:], item["size"], int(item["last_modified"].timestamp() * 1000)) for item in found)
        return tuple(sorted(files))

    def folders(self, prefix: str = "", *, start: str = "", stop: str | None = None) -> tuple[str, ...]:
        """Return the names of the folders directly under a folder, sorted.

        Args:
            prefix: the folder.
            start: the least name that is wanted; an object store then does not list what comes before it.
            stop: names from this one on are not wanted, and not listed either.
        """
        folder = self._key(prefix.strip("/"))
        with _reported("list", self._at(prefix)):
            if start and self.location.scheme != "file":
                names = self._names_from(f"{folder}/" if folder else "", start, stop)
            else:
                found = obstore.list_with_delimiter(self.objects, folder or None)["common_prefixes"]
                names = {path.rstrip("/").rpartition("/")[2] for path in found}
        return tuple(sorted(name for name in names if start <= name and (stop is None or name < stop)))

    def delete(self, paths: Iterable[str]) -> None:
        """Delete objects, in no particular order; one that is gone already is fine.

        Raises:
            StoreError: some cannot be deleted; others may have been.
        """
        keys = [self._key(path) for path in paths]
        if not keys:
            return
        with _reported("delete", self._at("")):
            try:
                obstore.delete(self.objects, keys)
            except FileNotFoundError:
                # One was gone, and the backend stopped there: the others one by one.
                for key in keys:
                    self._delete_one(key)

    def remove_folder(self, path: str) -> None:
        """Delete all objects under a folder, and the folder; one that is gone already is fine.

        Raises:
            StoreError: some cannot be deleted; others may have been.
        """
        self.delete(file.path for file in self.list(path))
        self.prune(path)

    def prune(self, path: str) -> None:
        """Remove a folder and those in it that hold no object; object stores have none."""
        if self.location.scheme != "file":
            return
        for folder, _, _ in os.walk(self.location.joined(path).path, topdown=False):
            with suppress(OSError):  # it is not empty, or another process was faster
                Path(folder).rmdir()

    def move(self, path: str, to: str) -> None:
        """Give an object another name, replacing what has it; on object stores a copy and a delete.

        Raises:
            FileNotFoundError: there is no such object.
            StoreError: it cannot be moved.
        """
        with _reported("move", self._at(path), passing=(FileNotFoundError,)):
            obstore.rename(self.objects, self._key(path), self._key(to))

    def _names_from(self, folder: str, start: str, stop: str | None) -> set[str]:
        """Return the folders whose names are at least ``start``; a listing of an object store is in the order of the keys."""
        names: set[str] = set()
        for batch in obstore.list(self.objects, folder or None, offset=f"{folder}{start}"):
            for item in batch:
                name, slash, _ = item["path"].removeprefix(folder).partition("/")
                if stop is not None and name >= stop:
                    return names
                if slash:
                    names.add(name)
        return names

    def _is_mark(self, key: str, folder: str) -> bool:
        """Say whether an empty object is ``key/``, by which Hadoop and consoles mark a folder; a listing shows it as ``key``."""
        if key == folder:
            return True
        if "." in key.rpartition("/")[2]:
            return False
        try:
            obstore.head(self.objects, key)
        except FileNotFoundError:
            return True
        return False

    def _delete_one(self, key: str) -> None:
        try:
            obstore.delete(self.objects, key)
        except FileNotFoundError:
            return

    def _key(self, path: str) -> str:
        return f"{self.prefix}/{path}" if self.prefix and path else self.prefix or path

    def _at(self, path: str) -> Location:
        return self.location.joined(path)


def _near(missing: Path) -> str:
    """Say what there is on the way to a folder that is missing."""
    above = next(folder for folder in missing.parents if folder.is_dir())
    with suppress(OSError):
        names = sorted(entry.name for entry in above.iterdir() if entry.is_dir())[:_NAMED]
        return f"{above} has {', '.join(names) or 'no folders'}"
    return f"{above} cannot be read"


@contextmanager
def _reported(verb: str, at: Location, *, passing: tuple[type[Exception], ...] = ()) -> Iterator[None]:
    """Turn a backend's trouble into a StoreError that names the path and holds no credentials, nor does its cause."""
    try:
        yield
    except _TROUBLE as error:
        if isinstance(error, passing) and not lacks_bucket(error):
            raise
        what = f"cannot {verb} {at}: {said(error)}"
        raise StoreError(what, fix=remedy(error, at.scheme), place=str(at)) from without_secrets(error)
