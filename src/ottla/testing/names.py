"""Names: what nobody else has, for tests that share a cluster, and our own client's."""

from ottla.env.rng import SystemRng

CLIENT_ID = "ottla-testing"
"""How the client of ``Cluster`` calls itself; faults do not strike it."""


def fresh_name(stem: str) -> str:
    """Return a name that begins with ``stem``."""
    return f"{stem}-{SystemRng().random_bytes(6).hex()}"
