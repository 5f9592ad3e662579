"""Who is at the other end of a connection, as handlers see it."""

from typing import NamedTuple

from ottla.ids import ANONYMOUS, Principal


class Client(NamedTuple):
    """Who asks, and by which of our addresses it reached us. One per connection."""

    host: str
    port: int
    local_host: str
    local_port: int
    principal: Principal = ANONYMOUS
