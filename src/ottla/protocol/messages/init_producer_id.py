"""InitProducerId, API key 22: gives a producer its id and epoch, and fences its predecessor.

v2 is flexible; v3 adds the id and epoch the producer had (KIP-360); v4 may answer PRODUCER_FENCED;
v5 TRANSACTION_ABORTABLE (KIP-890). v6 (two-phase commit, KIP-939) is unstable in Kafka 4.3.
"""

from ottla.protocol.schema import Message, int16, int32, int64, string


class InitProducerIdRequest(Message, api_key=22, versions="0-5", flexible="2+"):
    transactional_id: str | None = string(nullable="0+")
    transaction_timeout_ms: int = int32()
    producer_id: int = int64("3+", default=-1)
    producer_epoch: int = int16("3+", default=-1)


class InitProducerIdResponse(Message, api_key=22, versions="0-5", flexible="2+"):
    throttle_time_ms: int = int32(default=0)
    error_code: int = int16(default=0)
    producer_id: int = int64(default=-1)
    producer_epoch: int = int16()
