"""The net port of a process that was started with listening sockets.

They outlive the process: while another takes its place, clients wait in the kernel's queue, and
nobody else can take the port. A port that several processes were started with is a door of them
all: each connection goes to one that accepts it. Source: socket activation, as systemd does it.
"""

import os
import socket
from collections.abc import Mapping, Sequence

from ottla.env.real_net import AsyncioNet


class InheritedNet(AsyncioNet):
    """TCP through the running loop; some addresses are bound already."""

    def __init__(self, descriptors: Mapping[tuple[str, int], Sequence[int]]) -> None:
        """``descriptors``: by host and port as they are asked for, the sockets that listen."""
        self._descriptors = descriptors

    async def sockets(self, host: str, port: int, backlog: int) -> list[socket.socket]:
        """Return duplicates of the inherited sockets; without any, bind. Raises OSError."""
        inherited = self._descriptors.get((host, port))
        if inherited is None:
            return await super().sockets(host, port, backlog)
        return [socket.socket(fileno=os.dup(descriptor)) for descriptor in inherited]
