"""The limit on the memory of this process's container, by Linux's control groups, version 2 or 1.

What the kernel could take back at once, since it is in a file, is not counted, as Kubernetes does.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

from tidemark.state.status.resources import ContainerMemory

_NO_LIMIT: Final = 1 << 60
"""Version 1 has a number near 2**63 for no limit."""


def container_memory(root: Path = Path("/")) -> ContainerMemory | None:
    """Return the tightest limit of this process's group and those above it; None where there is none, or no control groups.

    Args:
        root: of the file system.
    """
    try:
        groups = [line.split(":", 2) for line in (root / "proc/self/cgroup").read_text(encoding="utf-8").splitlines()]
    except OSError:
        return None
    mount = root / "sys/fs/cgroup"
    found = []
    for _, controllers, path in (group for group in groups if len(group) == 3):
        if not controllers:
            found += [_read(folder, "memory.max", "memory.current", "inactive_file") for folder in _upwards(mount, path)]
        elif "memory" in controllers.split(","):
            names = ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file")
            found += [_read(folder, *names) for folder in _upwards(mount / "memory", path)]
    return min((each for each in found if each is not None), key=lambda each: each.limit_bytes, default=None)


def _upwards(mount: Path, path: str) -> Iterator[Path]:
    """Yield a group's folder and those above it; in a container the path may be one of the host's, and the mount the group's own."""
    folder = mount / path.lstrip("/")
    yield from (each for each in (folder, *folder.parents) if each.is_relative_to(mount))


def _read(folder: Path, limit: str, usage: str, reclaimable: str) -> ContainerMemory | None:
    try:
        most, used = (folder / limit).read_text(encoding="utf-8").strip(), int((folder / usage).read_text(encoding="utf-8"))
        free = _numbers(folder / "memory.stat").get(reclaimable, 0)
    except (OSError, ValueError):
        return None
    if not most.isdecimal() or not 0 < int(most) < _NO_LIMIT:
        return None
    return ContainerMemory(int(most), max(used - free, 0))


def _numbers(file: Path) -> Mapping[str, int]:
    fields = (line.split() for line in file.read_text(encoding="utf-8").splitlines())
    return {name: int(number) for name, number in fields}
