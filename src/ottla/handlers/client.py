"""The client at the other end of a connection, as handlers see it."""

from typing import NamedTuple

from ottla.ids import ANONYMOUS, Principal


class Client(NamedTuple):
    """A client's address and identity, and the address of ours that it has connected to."""

    host: str
    port: int
    local_host: str
    local_port: int
    principal: Principal = ANONYMOUS
    listener: str = ""
    """The name of the listener that it came by."""
