"""A stream to a process of this machine, by a socket with a path: a descriptor, or an open file.

For a process that is started to serve another one, which waits for it at that path. Blocks.
"""

import socket
from collections.abc import Iterator
from contextlib import contextmanager
from typing import BinaryIO, cast

from ottla.env.lifeline import end_with


def connect(path: str) -> int:
    """Return the descriptor of a connection. Raises OSError."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connected:
        connected.connect(path)
        return connected.detach()


@contextmanager
def opened(descriptor: int, *, buffer_bytes: int, grace_seconds: float) -> Iterator[BinaryIO]:
    """Have a connection as a file. This process ends ``grace_seconds`` after its other end."""
    with socket.socket(fileno=descriptor) as connected:
        end_with(connected, grace_seconds=grace_seconds)
        with connected.makefile("rwb", buffer_bytes) as file:
            yield cast("BinaryIO", file)
