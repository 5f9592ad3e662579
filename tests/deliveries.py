"""What became of the rows of transactions, by our own client: for tests of what Spark delivers."""

import time

from ottla.client.blocking.cluster import BlockingClient
from ottla.client.wire.fetching import FetchLimits
from ottla.client.wire.offsets import LATEST
from ottla.client.wire.reading import read_records
from ottla.client.wire.settings import ClientSettings, parse_bootstrap
from ottla.records.batch_walk import next_offset

COMMITTED = FetchLimits(max_wait_ms=100, read_committed=True)


def is_open(bootstrap, topic):
    """Tell whether rows are in the topic whose transaction has not ended."""
    with BlockingClient(ClientSettings(parse_bootstrap(bootstrap))) as client:
        latest = dict.fromkeys(client.partitions(topic), LATEST)
        return client.list_offsets(latest, read_committed=True) != client.list_offsets(latest)


def settled_ends(client, topic):
    """Wait until no transaction is open: its markers come soon after EndTxn was answered."""
    latest = dict.fromkeys(client.partitions(topic), LATEST)
    deadline = time.monotonic() + 20
    while True:
        ends = client.list_offsets(latest, read_committed=True)
        if ends == client.list_offsets(latest):
            return ends
        assert time.monotonic() < deadline, ends
        time.sleep(0.05)


def committed_values(bootstrap, topic):
    """Return what consumers of committed records see, sorted, once no transaction is open."""
    values = []
    with BlockingClient(ClientSettings(parse_bootstrap(bootstrap))) as client:
        ends = settled_ends(client, topic)
        for place in ends:
            position = 0
            while position < ends[place].offset:
                found = client.fetch({place: position}, COMMITTED)[place]
                records = read_records(found.records, position, found.aborted)
                values += [record.value.decode() for record in records]
                position = next_offset(found.records, position)
    return sorted(values)
