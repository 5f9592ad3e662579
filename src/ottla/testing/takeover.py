"""Another producer takes a transactional id over, before a request of the one that has it.

Owns the requests of the other one, which go to the router as if they had come by the connection of
the first. On the loop's thread.
"""

from collections.abc import Callable

from ottla.env.clock import Clock
from ottla.errors import CloseConnection, ErrorCode, MalformedMessage
from ottla.handlers.call import Answer
from ottla.pending import Pending
from ottla.protocol.apis import ApiKey
from ottla.protocol.header import decode_response_header, encode_request_header
from ottla.protocol.messages.init_producer_id import (
    InitProducerIdRequest,
    InitProducerIdResponse,
)
from ottla.protocol.primitives import RecordBytes
from ottla.testing.names import CLIENT_ID

VERSION = 4
LENGTH_BYTES = 4
TIMEOUT_MS = 60_000
"""Of the other one's transactions, of which it begins none."""
PAUSE_SECONDS = 0.005
TRIES_MAX = 2_000
"""So often it asks while the transaction of the first is still being aborted."""

Result = Answer | Pending[Answer | None] | None
Serve = Callable[[memoryview], Result]


def take_over(
    transactional_id: str, dispatch: Serve, serve: Callable[[], Result], clock: Clock
) -> Pending[Answer | None]:
    """Give the id to another producer, then ``serve`` the request of the one that had it."""
    request = InitProducerIdRequest(
        transactional_id=transactional_id, transaction_timeout_ms=TIMEOUT_MS
    )
    header = encode_request_header(ApiKey.INIT_PRODUCER_ID, VERSION, 0, CLIENT_ID)
    frame = memoryview(header + request.encode(VERSION))
    done: Pending[Answer | None] = Pending()

    def ask(tries: int) -> None:
        def heard(answer: Answer | None) -> None:
            if _is_busy(answer) and tries < TRIES_MAX:
                timer = clock.call_later(PAUSE_SECONDS, lambda: ask(tries + 1))
                done.on_cancel(timer.cancel)
            else:
                go_on()

        result = dispatch(frame)
        if isinstance(result, Pending):
            result.on_done(lambda told: heard(told.value if told.error is None else None))
        else:
            heard(result)

    def go_on() -> None:
        if done.is_cancelled:  # Its connection is closed.
            return
        try:
            result = serve()
        except (CloseConnection, MalformedMessage) as error:
            done.fail(error)
            return
        done.follow(result)

    ask(1)
    return done


def _is_busy(answer: Answer | None) -> bool:
    """Whether the transaction of the one before is not at its end yet."""
    if answer is None:
        return False
    data = memoryview(b"".join(each for each in answer if isinstance(each, RecordBytes)))
    _, position = decode_response_header(
        data, LENGTH_BYTES, len(data), api_key=ApiKey.INIT_PRODUCER_ID, api_version=VERSION
    )
    said, _ = InitProducerIdResponse.decoder(VERSION)(data, position, len(data))
    return said.error_code == ErrorCode.CONCURRENT_TRANSACTIONS
