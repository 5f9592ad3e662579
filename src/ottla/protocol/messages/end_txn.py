"""EndTxn, API key 26: commits or aborts a transaction.

v2 may answer PRODUCER_FENCED; v3 is flexible; v4 may answer TRANSACTION_ABORTABLE; v5 raises the
epoch with every transaction and answers the producer's new id and epoch (KIP-890).
"""

from ottla.protocol.schema import Message, boolean, int16, int32, int64, string


class EndTxnRequest(Message, api_key=26, versions="0-5", flexible="3+"):
    transactional_id: str = string()
    producer_id: int = int64()
    producer_epoch: int = int16()
    committed: bool = boolean()


class EndTxnResponse(Message, api_key=26, versions="0-5", flexible="3+"):
    throttle_time_ms: int = int32(default=0)
    error_code: int = int16(default=0)
    producer_id: int = int64("5+", default=-1)
    producer_epoch: int = int16("5+", default=-1)
