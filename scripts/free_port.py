"""Says in one line where a port of this machine is taken, before a server's trace does: ``python scripts/free_port.py PORT``."""

from __future__ import annotations

import errno
import socket
import sys


def main(port: int) -> int:
    """Return 0 if a server can listen there."""
    with socket.socket() as listening:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listening.bind(("127.0.0.1", port))
        except OSError as error:
            taken = "another program has it" if error.errno == errno.EADDRINUSE else error.strerror
            print(
                f"ui: port {port} is not free: {taken}. Fix: end that, or choose another port: make ui UI_PORT={_other(port)}",
                file=sys.stderr,
            )
            return 1
    return 0


def _other(port: int) -> int:
    return port + 1 if port < 65_535 else port - 1


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1])))
