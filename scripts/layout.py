"""Links the source folders under their import names, for tools that look for ``tidemark.assets`` at ``tidemark/assets``.

Python itself learns from the installed package where the parts are; mypy and import-linter read folders.
"""

from __future__ import annotations

import shutil
import sys
import tomllib
from pathlib import Path


def link_packages(checkout: Path, target: Path) -> None:
    """Make ``target`` a folder that looks as an installation would, with links to the files of the checkout.

    Args:
        checkout: folder of pyproject.toml, whose ``package-dir`` says where packages are.
        target: folder to make; an earlier one is replaced.
    """
    settings = tomllib.loads((checkout / "pyproject.toml").read_text(encoding="utf-8"))
    places: dict[str, str] = settings["tool"]["setuptools"]["package-dir"]
    if target.exists():
        shutil.rmtree(target)
    for package in sorted(places):
        source, link = checkout / places[package], target.joinpath(*package.split("."))
        if not any(other.startswith(f"{package}.") for other in places):
            link.symlink_to(source)
            continue
        link.mkdir(parents=True)
        for entry in source.iterdir():
            if entry.name != "__pycache__":
                (link / entry.name).symlink_to(entry)


if __name__ == "__main__":
    link_packages(Path.cwd(), Path.cwd() / (sys.argv[1] if len(sys.argv) > 1 else ".layout"))
