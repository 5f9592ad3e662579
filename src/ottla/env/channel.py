"""A pair of connected sockets between a process and one that it starts.

The one end is inherited: there is no path, no port and no permission, and when either process ends,
the other one sees the end of the stream, whatever the cause.
"""

import asyncio
import socket

from ottla.env.net import ProtocolFactory


def channel() -> tuple[socket.socket, socket.socket]:
    """Return both ends. Neither is inherited unless it is passed on explicitly."""
    return socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)


def inherited(descriptor: int) -> socket.socket:
    """Return the socket that this process was started with."""
    return socket.socket(fileno=descriptor)


async def open_channel(factory: ProtocolFactory, end: socket.socket) -> asyncio.Transport:
    """Give ``end`` to the running loop. Raises OSError."""
    end.setblocking(False)
    loop = asyncio.get_running_loop()
    transport, _ = await loop.create_unix_connection(factory, sock=end)
    return transport
