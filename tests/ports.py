"""A port for a server of a test."""

import socket


def free_port() -> int:
    """Return a port of the loopback address that nobody listens on now."""
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        return int(bound.getsockname()[1])
