"""Tells, on standard error, what ``ottla.Client`` asks of coordinators and leaders.

On if ``CLIENT_TRACE`` is set in the environment. A line has the time, the connection, the request
and what came of it: an answer, an error, or nothing because its caller gave up.
"""

import asyncio
import os
import sys
import time

from ottla.client.asyncio.connection import Connection
from ottla.protocol.messages.produce import ProduceRequest
from ottla.records.batch import read_header

TOLD = frozenset(
    (
        "InitProducerIdRequest",
        "AddPartitionsToTxnRequest",
        "AddOffsetsToTxnRequest",
        "TxnOffsetCommitRequest",
        "EndTxnRequest",
        "ProduceRequest",
    )
)


def start() -> None:
    """Begin, if the environment asks for it."""
    if "CLIENT_TRACE" not in os.environ:
        return
    ask = Connection.call

    async def call(self, request, answer, **options):
        name = type(request).__name__
        if name not in TOLD:
            return await ask(self, request, answer, **options)
        say(self, "asks", described(request))
        try:
            found = await ask(self, request, answer, **options)
        except asyncio.CancelledError:
            say(self, "nobody waits for", name)
            raise
        except BaseException as error:
            say(self, "failed", f"{name}: {error!r}")
            raise
        say(self, "answered", found)
        return found

    Connection.call = call


def described(request: object) -> object:
    """Return what is told of a request: of Produce the producer and the numbers, not the bytes."""
    if not isinstance(request, ProduceRequest):
        return request
    batches = [
        (topic.name or topic.topic_id, each.index, read_header(memoryview(each.records)))
        for topic in request.topic_data
        for each in topic.partition_data
    ]
    return "ProduceRequest " + ", ".join(
        f"{where}-{index} id {header.producer_id} epoch {header.producer_epoch}"
        f" from {header.base_sequence}, {header.record_count} records"
        for where, index, header in batches
    )


def say(connection: Connection, *words: object) -> None:
    print(f"{time.time():.3f} {id(connection) & 0xFFFFFF:06x}", *words, file=sys.stderr, flush=True)
