"""Set-up's view of Java: ``find`` prints the home of one that Spark can run on, ``make FOLDER`` puts one from PyPI there."""

from __future__ import annotations

import sys

from tidemark.errors import TidemarkError
from tidemark.spark.env.java import ensure_java, find_java_home


def main(arguments: list[str]) -> int:
    """Print a Java home; returns 1 where there is none."""
    match arguments:
        case ["find"]:
            home = find_java_home()
            if home is None:
                return 1
        case ["make", folder]:
            try:
                home = ensure_java(folder=folder)
            except TidemarkError as error:
                print(error, file=sys.stderr)
                return 1
        case _:
            print(__doc__, file=sys.stderr)
            return 2
    print(home)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
