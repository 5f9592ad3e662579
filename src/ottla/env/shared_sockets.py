"""Listening sockets that are bound here and served by processes that this one starts.

Owns them from the bind to the close. While a process that served one is gone, clients wait in the
kernel's queue; see ``inherited_net`` for the other side.
"""

import socket
from collections.abc import Sequence

from ottla.env.real_net import AsyncioNet


class SharedSockets:
    """Sockets by the host and port that they listen on."""

    def __init__(self) -> None:
        self._sockets: dict[tuple[str, int], list[socket.socket]] = {}

    async def listen(self, host: str, port: int, backlog: int) -> int:
        """Bind and listen; return the port, a free one for 0. Raises CannotListen."""
        sockets = await AsyncioNet().sockets(host, port, backlog)
        taken = int(sockets[0].getsockname()[1])
        self._sockets[host, taken] = sockets
        return taken

    def descriptors(self, host: str, port: int) -> Sequence[int]:
        """Return those of one address: a name may stand for several addresses."""
        return [one.fileno() for one in self._sockets[host, port]]

    def close(self) -> None:
        """Listen no more here. Harmless when closed."""
        for sockets in self._sockets.values():
            for one in sockets:
                one.close()
        self._sockets.clear()
