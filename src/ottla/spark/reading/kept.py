"""What outlasts a task: Spark gives a Python worker one task after the other.

A task takes the client that the one before it left, with its connections open, versions agreed on
and, with SASL or TLS, its handshakes done, and the decoder, whose buffers are there already (making
them anew costs more than reading 50,000 records); a stream of small batches would spend much of
its time on these. A task that fails leaves nothing behind. What the cluster looks like is kept for
a while, too, where brokers fetch by the ids of topics (``BlockingClient.knows``).
"""

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager

from ottla.client.blocking.cluster import BlockingClient
from ottla.client.wire.settings import ClientSettings
from ottla.spark.lending import Key, lend
from ottla.spark.reading.columns import ArrowDecoder

KEPT_MAX = 4
"""Clients."""
_KEPT: dict[Key, BlockingClient] = {}
_DECODERS: dict[tuple[str, ...], ArrowDecoder] = {}
"""The decoder by its columns; only the last one is kept, for its buffers have tens of MiB."""


def kept_client(settings: ClientSettings) -> AbstractContextManager[BlockingClient]:
    """Lend a client with these settings; it is kept for the next task unless this one fails."""
    return lend(_KEPT, settings, BlockingClient, count_max=KEPT_MAX)


@contextmanager
def kept_decoder(columns: Sequence[str]) -> Iterator[ArrowDecoder]:
    """Lend a decoder of these columns; it is kept for the next task unless this one fails.

    Take its ``rest`` before you give it back. One whose buffers a huge record has made huge is
    not kept.
    """
    key = tuple(columns)
    decoder = _DECODERS.pop(key, None) or ArrowDecoder(columns)
    yield decoder
    _DECODERS.clear()
    if not decoder.has_grown:
        _DECODERS[key] = decoder
