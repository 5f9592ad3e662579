"""AddOffsetsToTxn, API key 25: registers a group's offsets with a transaction.

v2 may answer PRODUCER_FENCED; v3 is flexible; v4 may answer TRANSACTION_ABORTABLE (KIP-890).
"""

from ottla.protocol.schema import Message, int16, int32, int64, string


class AddOffsetsToTxnRequest(Message, api_key=25, versions="0-4", flexible="3+"):
    transactional_id: str = string()
    producer_id: int = int64()
    producer_epoch: int = int16()
    group_id: str = string()


class AddOffsetsToTxnResponse(Message, api_key=25, versions="0-4", flexible="3+"):
    throttle_time_ms: int = int32(default=0)
    error_code: int = int16(default=0)
