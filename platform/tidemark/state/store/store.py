"""The job store: objects by path, on a local disk or an object store, with put-if-absent.

Everything that Tidemark stores about jobs goes through here, by ``obstore``; a put is atomic on all of its backends, and a create
succeeds for one writer only. On object stores that needs conditional puts (S3, GCS and Azure have them).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

import obstore
from obstore.exceptions import AlreadyExistsError, BaseError
from obstore.store import LocalStore, ObjectStore

from tidemark.errors import CorruptStoreError, StoreError, TidemarkError, UnknownStoreError, UnusablePlaceError
from tidemark.locations import Location, stays_within
from tidemark.state.encoding.redaction import without_secrets
from tidemark.state.store.local_files import (
    delete_files,
    describe_nearest_folder,
    first_link_in,
    links_in_the_way,
    links_under,
    list_files,
    list_folders,
    remove_empty_folders,
)
from tidemark.state.store.object_stores import error_line, is_unusable, lacks_bucket, open_remote, remedy

_WRITTEN_AT_ONCE = 8 * 1024 * 1024
_CREATIONS = 5
_BACKEND_ERRORS = (BaseError, OSError, ValueError)


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
            make: without it, a missing folder is an error, since a command that only reads was given a wrong place. On an object store
                that is one without objects.

        Raises:
            DefinitionError: the location cannot be read as one.
            UnknownStoreError: the folder is missing, and ``make`` is false.
            StoreError: the root cannot be reached or made.
        """
        root = Location.parse(location) if isinstance(location, str) else location
        if not make and root.scheme == "file" and not Path(root.path).is_dir():
            raise UnknownStoreError(
                f"there is nothing at {root}: no such folder",
                fix=f"give an existing place, with jobs or an export; {describe_nearest_folder(Path(root.path))}",
                place=str(root),
            )
        with _translating_errors("open", root, opening=True):
            if root.scheme == "file":
                return cls(root, LocalStore(root.path, mkdir=True))
            opened = cls(root, open_remote(root))
        if not make and opened.is_empty():
            raise UnknownStoreError(
                f"there is nothing at {root}: no object's name begins so",
                fix="give an existing place, with jobs or an export",
                place=str(root),
            )
        return opened

    @property
    def uri(self) -> str:
        """The store's own address, from which ``open`` opens the same store: ``file:///…``, ``s3://…``, ``gs://…``, ``az://…``."""
        return self.location.address

    def spark_uri(self, path: str = "") -> str:
        """Return an object's address as Spark reads it, such as ``s3a://…``; without a path, the store's own."""
        return self.location.joined(path).spark_uri

    def at(self, prefix: str) -> JobStore:
        """Return a view of one folder, which need not exist."""
        return JobStore(self.location.joined(prefix), self.objects, self._key(prefix.strip("/")))

    def sibling(self, name: str) -> JobStore:
        """Return a view of the folder of that name beside this one: another job's of the same store."""
        above, _, own = self.prefix.rpartition("/")
        path = self.location.path.removesuffix(own) + name
        return JobStore(replace(self.location, path=path), self.objects, f"{above}/{name}" if above else name)

    @property
    def parent(self) -> JobStore:
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
        with _translating_errors("read", self._at(path), passing=(FileNotFoundError,)):
            return bytes(obstore.get(self.objects, self._key(path)).bytes())

    def tail(self, path: str, length: int) -> tuple[bytes, int]:
        """Return the last ``length`` bytes of an object (all of it if it is shorter) and its whole size.

        Raises:
            FileNotFoundError: there is no such object.
            StoreError: it cannot be read.
        """
        with _translating_errors("read", self._at(path), passing=(FileNotFoundError,)):
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
        with _translating_errors("read", self._at(path), passing=(FileNotFoundError,)):
            for chunk in obstore.get(self.objects, self._key(path)).stream(min_chunk_size=size):
                yield bytes(chunk)

    def put_chunks(self, path: str, chunks: Iterable[bytes]) -> None:
        """Write an object from its pieces, replacing an older one; if the pieces end in an error, the object must not be used.

        Raises:
            StoreError: it cannot be written.
        """
        with (
            _translating_errors("write", self._at(path), passing=(FileNotFoundError, TidemarkError)),
            obstore.open_writer(self.objects, self._key(path), buffer_size=_WRITTEN_AT_ONCE) as writer,
        ):
            for chunk in chunks:
                writer.write(chunk)

    def put(self, path: str, data: bytes) -> None:
        """Write an object whole, replacing an older one atomically: readers see the old or the new."""
        with _translating_errors("write", self._at(path)):
            obstore.put(self.objects, self._key(path), data, use_multipart=False)

    def create(self, path: str, data: bytes) -> None:
        """Write an object if there is none.

        Of several writers at once one succeeds. After a StoreError the object may have been written or not.

        Raises:
            FileExistsError: there is one already; it is unchanged.
            StoreError: it cannot be written.
        """
        with _translating_errors("write", self._at(path), passing=(FileExistsError,)):
            for tried in range(1, _CREATIONS + 1):
                try:
                    obstore.put(self.objects, self._key(path), data, mode="create", use_multipart=False)
                except AlreadyExistsError as error:
                    # S3 says so, too, during another writer's write or deletion of it, after which there may be none.
                    if self.exists(path):
                        raise FileExistsError(str(self._at(path))) from error
                    if tried == _CREATIONS:
                        raise
                else:
                    return

    def is_empty(self) -> bool:
        """Return whether there is no object."""
        with _translating_errors("list", self.location):
            if self._root is not None:
                return not any(list_files(self._root, self.prefix, follow_links=True))
            return not any(obstore.list(self.objects, self.prefix or None, chunk_size=1))

    def exists(self, path: str) -> bool:
        """Return whether there is such an object."""
        with _translating_errors("read", self._at(path)):
            try:
                obstore.head(self.objects, self._key(path))
            except FileNotFoundError:
                return False
        return True

    def modified_ms(self, path: str) -> int | None:
        """Return when an object was written, milliseconds; None if there is none."""
        with _translating_errors("read", self._at(path)):
            try:
                return int(obstore.head(self.objects, self._key(path))["last_modified"].timestamp() * 1000)
            except FileNotFoundError:
                return None

    def list(self, prefix: str = "", *, follow_links: bool = True, start: str = "") -> tuple[ListedFile, ...]:
        """Return all objects under a folder, at any depth, sorted by path; none if the folder is missing.

        Args:
            prefix: the folder.
            follow_links: whether files behind symbolic links of a local store are listed, too. Pass false to list files for deletion:
                the links are left out then, and logged.
            start: the first path to list; a store may list earlier ones, too.
        """
        folder = self._key(prefix.strip("/"))
        cut = len(self.prefix) + 1 if self.prefix else 0
        with _translating_errors("list", self._at(prefix)):
            if self._root is not None:
                local = list_files(self._root, folder, follow_links=follow_links)
                return tuple(sorted(ListedFile(path[cut:], size, modified) for path, size, modified in local))
            found = obstore.list(self.objects, folder or None, offset=self._key(start) if start else None).collect()
            if self.location.scheme != "file":
                found = [item for item in found if item["size"] or not self._is_mark(item["path"], folder)]
        return tuple(sorted(ListedFile(item["path"][cut:], item["size"], int(item["last_modified"].timestamp() * 1000)) for item in found))

    def folders(self, prefix: str = "", *, start: str = "", stop: str | None = None) -> tuple[str, ...]:
        """Return the names of the folders directly under a folder, sorted.

        Args:
            prefix: the folder.
            start: the least name to list; an object store then does not list earlier ones.
            stop: the first name not to list.
        """
        folder = self._key(prefix.strip("/"))
        with _translating_errors("list", self._at(prefix)):
            if self._root is not None:
                names = list_folders(self._root, folder)
            elif start and self.location.scheme != "file":
                names = self._names_from(f"{folder}/" if folder else "", start, stop)
            else:
                found = obstore.list_with_delimiter(self.objects, folder or None)["common_prefixes"]
                names = {path.rstrip("/").rpartition("/")[2] for path in found}
        return tuple(sorted(name for name in names if start <= name and (stop is None or name < stop)))

    def delete(self, paths: Iterable[str]) -> tuple[str, ...]:
        """Delete objects, in no particular order; one that is missing already is fine.

        On a local disk, symbolic links and files behind them are left, and the links logged; folders that become empty are
        removed, as there are none on object stores.

        Returns:
            The paths that were left.

        Raises:
            CorruptStoreError: a path leads out of this view; nothing was deleted.
            StoreError: some cannot be deleted; others may have been.
        """
        given = tuple(paths)
        self._require_within(given)
        if not given:
            return ()
        keys = [self._key(path) for path in given]
        with _translating_errors("delete", self._at("")):
            if self._root is not None:
                left = set(delete_files(self._root, keys))
                return tuple(path for path, key in zip(given, keys, strict=True) if key in left)
            try:
                obstore.delete(self.objects, keys)
            except FileNotFoundError:
                # One was missing, and the backend stopped there: delete the others one by one.
                for key in keys:
                    self._delete_one(key)
        return ()

    def remove_folder(self, path: str) -> None:
        """Delete all objects under a folder, and the folder; one that is missing already is fine, and links are left as in ``delete``.

        Raises:
            CorruptStoreError: the path leads out of this view; nothing was deleted.
            StoreError: some cannot be deleted; others may have been.
        """
        self._require_within([path] if path else [])
        self.delete(file.path for file in self.list(path, follow_links=False))
        self.prune(path)

    def prune(self, path: str) -> None:
        """Remove a folder and those in it that hold no object; object stores have none, and links are left."""
        if self._root is not None:
            remove_empty_folders(self._root, self._key(path))

    def links(self, path: str = "") -> tuple[str, ...]:
        """Return the symbolic links in a folder of a local store, none of them followed, or the one that the folder lies behind.

        Their paths are those on the disk.
        """
        with _translating_errors("list", self._at(path)):
            root = self._root
            return () if root is None else tuple(str(Path(root, link)) for link in links_under(root, self._key(path)))

    def require_no_link(self, path: str) -> None:
        """Make sure that an object can be deleted; called before a deletion that the user requested.

        Raises:
            LinkedPathError: it is a symbolic link, or lies behind one.
        """
        link = first_link_in(self._root, self._key(path)) if self._root is not None else None
        if self._root is not None and link is not None:
            raise links_in_the_way([str(Path(self._root, link))])

    def move(self, path: str, to: str) -> None:
        """Rename an object, replacing one of the new name; on object stores a copy and a delete.

        Raises:
            FileNotFoundError: there is no such object.
            CorruptStoreError: a path leads out of this view.
            LinkedPathError: the object is a symbolic link, or lies behind one: moving it would take it from where the link leads.
            StoreError: it cannot be moved.
        """
        self._require_within([path, to])
        self.require_no_link(path)
        with _translating_errors("move", self._at(path), passing=(FileNotFoundError,)):
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
        """Return whether an empty object is ``key/``, by which Hadoop and consoles mark a folder; a listing shows it as ``key``."""
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

    @property
    def _root(self) -> str | None:
        """The folder that all views of a local store lie in; None for other stores."""
        return str(self.objects.prefix) if isinstance(self.objects, LocalStore) else None

    def _require_within(self, paths: Iterable[str]) -> None:
        """Make sure that paths, which may come from a record, stay within this view."""
        for path in paths:
            if not stays_within(path):
                raise CorruptStoreError(
                    f"{path!r} leads out of {self.location}, and nothing there is deleted or moved",
                    fix="the record that names it was not written by Tidemark: restore it from a backup of the job store",
                    place=str(self.location),
                )

    def _key(self, path: str) -> str:
        return f"{self.prefix}/{path}" if self.prefix and path else self.prefix or path

    def _at(self, path: str) -> Location:
        return self.location.joined(path)


@contextmanager
def _translating_errors(verb: str, at: Location, *, passing: tuple[type[Exception], ...] = (), opening: bool = False) -> Iterator[None]:
    """Turn a backend's error into a StoreError that names the path; neither it nor its cause holds credentials."""
    try:
        yield
    except _BACKEND_ERRORS as error:
        if isinstance(error, passing) and not lacks_bucket(error):
            raise
        form = UnusablePlaceError if lacks_bucket(error) or (opening and is_unusable(error)) else StoreError
        raise form(f"cannot {verb} {at}: {error_line(error)}", fix=remedy(error, at.scheme), place=str(at)) from without_secrets(error)
