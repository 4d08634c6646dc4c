"""Fails with a sentence if the example cannot be served at a port: ``python free_port.py 8000``."""

import errno
import socket
import sys


def main(port: str) -> str | None:
    """Return an error message, or None if the port can be used."""
    if not port.isdecimal() or not 1 <= int(port) <= 65535:
        return f"PORT must be a number from 1 to 65535, not {port!r}."
    try:
        socket.create_server(("127.0.0.1", int(port))).close()
    except OSError as error:
        why = "is in use" if error.errno == errno.EADDRINUSE else f"cannot be used ({error.strerror})"
        return f"Port {port} {why}. Choose another one with PORT=, as in: make run PORT=8001"
    return None


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
