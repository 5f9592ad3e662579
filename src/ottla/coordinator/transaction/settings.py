"""What the node's options mean to the transaction coordinator: plain values."""

from typing import NamedTuple


class TransactionSettings(NamedTuple):
    """The options of the transaction coordinator."""

    timeout_max_ms: int
    """``transaction.max.timeout.ms``."""
    expiration_ms: int
    """``transactional.id.expiration.ms``: from the last change of an id with no open transaction.
   """
    expiration_check_interval_ms: int
    add_partitions_wait_ms: int = 100
    """``add.partitions.to.txn.retry.backoff.max.ms``: the wait for the transaction before to end.
   """
    ids_max: int = 20_000
    """``ottla.transactional.ids.max``: of one shard."""
    waiting_max: int = 1000
    """How many requests of one shard may wait so: each holds what its client wants to write."""
