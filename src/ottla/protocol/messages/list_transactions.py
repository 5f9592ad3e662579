"""ListTransactions, API key 66: lists the transactions that one broker coordinates (KIP-664).

v1 filters by duration (KIP-994); v2 by a pattern of the transactional id (KIP-1152).
"""

from ottla.protocol.schema import Message, Struct, array, int16, int32, int64, string


class ListTransactionsRequest(Message, api_key=66, versions="0-2", flexible="0+"):
    state_filters: list[str] = array(string)
    producer_id_filters: list[int] = array(int64)
    duration_filter: int = int64("1+", default=-1)
    transactional_id_pattern: str | None = string("2+", nullable="0+", default=None)


class TransactionState(Struct):
    transactional_id: str = string()
    producer_id: int = int64()
    transaction_state: str = string()


class ListTransactionsResponse(Message, api_key=66, versions="0-2", flexible="0+"):
    throttle_time_ms: int = int32(default=0)
    error_code: int = int16(default=0)
    unknown_state_filters: list[str] = array(string)
    transaction_states: list[TransactionState] = array(TransactionState)
