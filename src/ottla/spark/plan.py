"""What to read, asked of the cluster: the options become one range of offsets per partition.

The planner's side: runs once per query in a Python process of the driver, and imports nothing but
the standard library and this project. Knows no pyarrow and no records.
"""

from ottla.client.blocking import BlockingClient
from ottla.client.settings import ClientSettings, parse_bootstrap
from ottla.config.option import InvalidConfig
from ottla.errors import ErrorCode, KafkaError
from ottla.ids import TopicPartition
from ottla.spark.offsets import OffsetRange, ranges
from ottla.spark.options import OptionError, SourceOptions

CLIENT_ID = "ottla-spark"
PLAN_RETRY_TIMEOUT_MS = 3_000
"""How long to wait for a topic that is being made or for its leaders; somebody watches."""
READ_RETRY_TIMEOUT_MS = 60_000
"""How long a task outlasts a broker that is restarted or a leader that moves."""


def client_settings(bootstrap: str, *, retry_timeout_ms: int) -> ClientSettings:
    """Return the client's settings. Raises OptionError for a bootstrap list that is none."""
    try:
        addresses = parse_bootstrap(bootstrap)
    except InvalidConfig as error:
        raise OptionError(str(error)) from error
    return ClientSettings(
        bootstrap=addresses,
        client_id=CLIENT_ID,
        connect_timeout_ms=5_000,
        retry_timeout_ms=retry_timeout_ms,
    )


def plan(options: SourceOptions) -> list[OffsetRange]:
    """Return the ranges to read, none of them empty. Blocks.

    Raises KafkaError (UNKNOWN_TOPIC_OR_PARTITION), ConnectionFailed, OptionError for offsets that
    do not fit the partitions.
    """
    settings = client_settings(options.bootstrap, retry_timeout_ms=PLAN_RETRY_TIMEOUT_MS)
    with BlockingClient(settings) as client:
        partitions = _partitions(client, options)
        earliest = client.earliest_offsets(partitions)
        latest = client.latest_offsets(partitions)
    try:
        return ranges(options.starting, options.ending, earliest, latest)
    except ValueError as error:
        raise OptionError(str(error)) from error


def _partitions(client: BlockingClient, options: SourceOptions) -> list[TopicPartition]:
    """Return the partitions that the options mean, each of which exists."""
    if options.topics:
        view = client.refresh(options.topics)
        return [
            TopicPartition(topic, partition)
            for topic in options.topics
            for partition in view.topic(topic).partitions
        ]
    view = client.refresh({topic for topic, _ in options.partitions})
    for topic, partition in options.partitions:
        there = view.topic(topic).partitions
        if partition not in there:
            why = f"{topic}-{partition}: the topic has {len(there)} partitions, numbered from 0"
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, why)
    return list(options.partitions)
