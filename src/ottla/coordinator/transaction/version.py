"""The transaction version: how transactions behave, as brokers and clients agree (KIP-890)."""

BUMPS_EPOCH_SINCE = 2
"""The transaction version that raises the epoch with every transaction (KIP-890)."""
SERVER_VERSION = 2
"""The transaction version that is finalized here; this node's own aborts have it."""
