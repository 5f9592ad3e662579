"""What the node's options mean to the transaction coordinator: plain values."""

from typing import NamedTuple


class TransactionSettings(NamedTuple):
    """See the options of these names."""

    timeout_max_ms: int
    """``transaction.max.timeout.ms``."""
    expiration_ms: int
    """``transactional.id.expiration.ms``: from the last change of an id without transaction."""
    expiration_check_interval_ms: int
    add_partitions_wait_ms: int = 100
    """``add.partitions.to.txn.retry.backoff.max.ms``: for the end of the transaction before."""
    ids_max: int = 20_000
    """``ottla.transactional.ids.max``: of one shard."""
    waiting_max: int = 1000
    """Requests of one shard that wait so at a time: each holds what it wants to write."""
