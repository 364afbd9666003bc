"""The files of a store on a local disk, and the one place that deletes any: a deletion never follows a symbolic link.

Files behind a link in a store may be used by others too, so the store must not delete them. A link is left where it is and logged,
once by each process. Reading and writing follow links, as everywhere. Only links below the store's root count: a root may be a link,
or lie behind one, and is then the folder that the link leads to.
"""

from __future__ import annotations

import errno
import logging
import os
import re
import stat
from collections import defaultdict
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final, NamedTuple

from tidemark.errors import LinkedPathError

logger = logging.getLogger("tidemark")

_PART: Final = re.compile(r".*#\d+")
"""What obstore calls a file that it is writing; no listing shows it."""

_MAX_NAMES: Final = 10
_FOLDER: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_named: set[str] = set()


class LocalFile(NamedTuple):
    """A file by its path within the root, as a listing shows it."""

    path: str
    size: int
    modified_ms: int


def list_files(root: str, folder: str, *, follow_links: bool) -> Iterator[LocalFile]:
    """Yield the files under a folder of a root, at any depth and in no order; none where the folder is missing.

    Args:
        root: the store's root.
        folder: a path within it, ``""`` for the root itself.
        follow_links: whether files behind links are listed, too; but never behind those that lead nowhere, or to a folder they lie in.

    Raises:
        OSError: a folder cannot be read.
    """
    if not follow_links and (link := first_link_in(root, folder)) is not None:
        warn_about_link(root, link)
        return
    yield from _all(root, folder) if follow_links else _own(root, folder)


def list_folders(root: str, folder: str) -> set[str]:
    """Return the names of the folders directly in a folder, links to folders among them; none where it is missing.

    Raises:
        OSError: the folder cannot be read.
    """
    return {entry.name for entry in _entries(Path(root, folder)) if _is_folder(entry)}


def links_under(root: str, folder: str) -> list[str]:
    """Return the paths of the links in a folder, at any depth, none of them followed; the one that leads to the folder, if it is one.

    Raises:
        OSError: a folder cannot be read.
    """
    link = first_link_in(root, folder)
    return [link] if link is not None else sorted(_links(root, folder))


def first_link_in(root: str, path: str) -> str | None:
    """Return the first part of a path within a root that is a link, as a path; None if none is, or the path is missing."""
    so_far = ""
    for part in path.split("/") if path else ():
        so_far = f"{so_far}/{part}" if so_far else part
        try:
            found = Path(root, so_far).lstat()
        except (FileNotFoundError, NotADirectoryError):
            return None
        if stat.S_ISLNK(found.st_mode):
            return so_far
    return None


def delete_files(root: str, paths: Iterable[str]) -> list[str]:
    """Delete files of a root, and the folders that become empty by it; one that is missing is fine.

    Each folder is opened from its parent, without following links: a folder that becomes a link while this runs is left, too.

    Returns:
        The paths that were left, since they are links or lie behind one; the links are named in the log.

    Raises:
        OSError: a file cannot be deleted; others may have been.
    """
    by_folder: dict[str, list[str]] = defaultdict(list)
    for path in paths:
        folder, _, name = path.rpartition("/")
        by_folder[folder].append(name)
    left = []
    # The deepest first: a folder is empty once those in it are deleted.
    for folder in sorted(by_folder, key=lambda folder: -folder.count("/")):
        names = by_folder[folder]
        left += [f"{folder}/{name}" if folder else name for name in _delete_in(root, folder, names)]
    return left


def remove_empty_folders(root: str, folder: str) -> None:
    """Remove a folder of a root and the empty folders in it; neither links nor anything behind them."""
    if first_link_in(root, folder) is not None:
        return
    for place, _, _ in os.walk(Path(root, folder), topdown=False):
        with suppress(OSError):  # it is not empty, or another process was faster
            Path(place).rmdir()


def warn_about_link(root: str, link: str) -> None:
    """Log, once, that a link is not deleted."""
    place = str(Path(root, link))
    if place not in _named:
        _named.add(place)
        logger.warning("%s is a symbolic link: neither it nor what lies behind it is deleted", place)


def links_in_the_way(links: Iterable[str]) -> LinkedPathError:
    """Return the error that symbolic links block a requested deletion."""
    named = list(links)
    more = f" and {len(named) - 1} more" if len(named) > 1 else ""
    return LinkedPathError(
        f"{named[0]}{more} is a symbolic link, and what lies behind it is not deleted",
        fix="remove the link, or put the folder itself in its place, and try again",
        place=named[0],
    )


def describe_nearest_folder(missing: Path) -> str:
    """Describe the nearest existing folder above a missing one."""
    above = next(folder for folder in missing.parents if folder.is_dir())
    with suppress(OSError):
        names = sorted(entry.name for entry in above.iterdir() if entry.is_dir())[:_MAX_NAMES]
        return f"{above} has {', '.join(names) or 'no folders'}"
    return f"{above} cannot be read"


def _delete_in(root: str, folder: str, names: list[str]) -> list[str]:
    """Delete files of one folder; returns the names that were left."""
    parts = folder.split("/") if folder else []
    try:
        opened = [os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)]
    except FileNotFoundError:
        return []
    try:
        for part in parts:
            try:
                opened.append(os.open(part, _FOLDER, dir_fd=opened[-1]))
            except FileNotFoundError:
                return []
            except OSError as error:
                if error.errno not in (errno.ELOOP, errno.ENOTDIR):
                    raise
                if not _is_link(part, opened[-1]):
                    return []  # a file is in the folder's place, so there is nothing in it
                warn_about_link(root, "/".join(parts[: len(opened)]))
                return names
        left = [name for name in names if not _delete_one(name, opened[-1])]
        for name in left:
            warn_about_link(root, f"{folder}/{name}" if folder else name)
        for above, part in reversed(list(zip(opened, parts, strict=False))):
            with suppress(OSError):  # it is not empty, or another process was faster
                os.rmdir(part, dir_fd=above)
        return left
    finally:
        for descriptor in opened:
            os.close(descriptor)


def _delete_one(name: str, folder: int) -> bool:
    """Delete a file of an open folder; return False if it is a link, which is left."""
    if _is_link(name, folder):
        return False
    with suppress(FileNotFoundError):
        os.unlink(name, dir_fd=folder)
    return True


def _is_link(name: str, folder: int) -> bool:
    try:
        return stat.S_ISLNK(os.lstat(name, dir_fd=folder).st_mode)
    except FileNotFoundError:
        return False


def _own(root: str, folder: str) -> Iterator[LocalFile]:
    """Yield the files under a folder, without following links."""
    for entry in _entries(Path(root, folder)):
        path = f"{folder}/{entry.name}" if folder else entry.name
        if entry.is_symlink():
            warn_about_link(root, path)
        elif _is_folder(entry):
            yield from _own(root, path)
        else:
            yield from _file(path, entry)


def _all(root: str, folder: str, above: tuple[tuple[int, int], ...] = ()) -> Iterator[LocalFile]:
    """Yield the files under a folder, and those that links in it lead to; ``above`` are the folders on the way to it."""
    try:
        found = Path(root, folder).stat()
    except (FileNotFoundError, NotADirectoryError):
        return
    if (found.st_dev, found.st_ino) in above:
        return
    for entry in _entries(Path(root, folder)):
        path = f"{folder}/{entry.name}" if folder else entry.name
        if _is_folder(entry):
            yield from _all(root, path, (*above, (found.st_dev, found.st_ino)))
        else:
            yield from _file(path, entry)


def _file(path: str, entry: os.DirEntry[str]) -> Iterator[LocalFile]:
    """Yield an entry of a folder if it is a file that a listing shows."""
    if not _PART.fullmatch(entry.name):
        try:
            found = entry.stat()
        except OSError as error:
            # It was deleted just now, or is a link that leads nowhere, or to itself.
            if error.errno in (errno.ENOENT, errno.ELOOP):
                return
            raise
        if stat.S_ISREG(found.st_mode):
            yield LocalFile(path, found.st_size, found.st_mtime_ns // 1_000_000)


def _links(root: str, folder: str) -> Iterator[str]:
    for entry in _entries(Path(root, folder)):
        path = f"{folder}/{entry.name}" if folder else entry.name
        if entry.is_symlink():
            yield path
        elif _is_folder(entry):
            yield from _links(root, path)


def _entries(place: Path) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(place) as entries:
            return list(entries)
    except (FileNotFoundError, NotADirectoryError):
        return []


def _is_folder(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_dir()
    except OSError as error:
        if error.errno == errno.ELOOP:  # a link that leads to itself
            return False
        raise
