"""A disk of its own for a test, that can be full or refuse writes."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest


@contextmanager
def small_disk(folder: Path, kibibytes: int) -> Iterator[None]:
    """Mount a disk of so many kibibytes on a folder; the test is skipped where this process may not."""
    folder.mkdir()
    if not _mount("-t", "tmpfs", "-o", f"size={kibibytes}k", "tmpfs", str(folder)):
        pytest.skip("this process may not mount a small disk")
    try:
        yield
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], capture_output=True, check=True)


def fill(folder: Path, *, free_kibibytes: int = 0) -> Path:
    """Leave so much free of a disk; returns the file that takes the rest."""
    filler = folder / "filler"
    disk = os.statvfs(folder)
    filler.write_bytes(bytes(max(0, disk.f_bavail * disk.f_frsize - free_kibibytes * 1024)))
    return filler


def let_write(folder: Path, *, allowed: bool) -> None:
    """Let nobody write to a disk any more, or everybody again; not even to root can that be refused otherwise."""
    assert _mount("-o", f"remount,{'rw' if allowed else 'ro'}", str(folder))


def _mount(*arguments: str) -> bool:
    mount = shutil.which("mount")
    if mount is None or sys.platform != "linux":
        return False
    return subprocess.run([mount, *arguments], capture_output=True, check=False).returncode == 0
