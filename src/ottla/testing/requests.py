"""The last requests that a broker served, for the report of a failed test.

Owns a short list; no request is decoded for it. On the loop's thread, but for ``lines``.
"""

from collections import deque
from typing import NamedTuple

from ottla.env.clock import Clock
from ottla.handlers.client import Client
from ottla.protocol.apis import ApiKey

KEPT = 50
"""How many requests are kept."""


class Seen(NamedTuple):
    """One request."""

    at: float
    """Seconds of the clock."""
    api_key: int
    version: int
    client_id: str
    client: Client
    size_bytes: int


class LastRequests:
    """The last requests, oldest first."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._seen: deque[Seen] = deque(maxlen=KEPT)

    def note(
        self, api_key: int, version: int, client_id: str, client: Client, size_bytes: int
    ) -> None:
        """Keep one more, and forget the oldest."""
        now = self._clock.monotonic()
        self._seen.append(Seen(now, api_key, version, client_id, client, size_bytes))

    def lines(self) -> list[str]:
        """Return a line for each, the newest last. From any thread."""
        now = self._clock.monotonic()
        return [
            f"{now - each.at:8.3f} s ago  {_name(each.api_key)} v{each.version}"
            f"  {each.client_id or '-'}  {each.client.host}:{each.client.port}"
            f"  {each.size_bytes} bytes"
            for each in list(self._seen)
        ]


def _name(api_key: int) -> str:
    known = api_key in ApiKey.__members__.values()
    return api_name(ApiKey(api_key)) if known else f"API {api_key}"


def api_name(key: ApiKey) -> str:
    """Return what Kafka's pages call an API: ``OffsetCommit``."""
    return "".join(part.capitalize() for part in key.name.split("_"))
