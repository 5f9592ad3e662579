"""Names that nobody has: topics and groups of tests that share a cluster."""

from ottla.env.rng import SystemRng


def fresh_name(stem: str) -> str:
    """Return a name that begins with ``stem``."""
    return f"{stem}-{SystemRng().random_bytes(6).hex()}"
