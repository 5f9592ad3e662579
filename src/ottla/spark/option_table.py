"""The options of reading with ``format("ottla")``: names, defaults and what each one means.

Owns the one list that parsing, the suggestion for a mistyped name and the page ``docs/spark.md``
are made from. Knows no values. Source: Spark's Structured Streaming and Kafka guide, whose names
these are where not told otherwise.
"""

from collections.abc import Mapping
from enum import Enum
from typing import NamedTuple


class Use(Enum):
    """In which queries an option has a meaning. In the others it is an error, if not said."""

    BOTH = ""
    BATCH = "batch"
    STREAM = "streaming"


class OptionRow(NamedTuple):
    """One option. ``default`` and ``meaning`` are as the page shows them."""

    name: str
    default: str
    meaning: str
    use: Use = Use.BOTH
    is_ours: bool = False
    """Whether Spark's Kafka connector does not have it."""


COLUMN_TYPES = {
    "key": "binary",
    "value": "binary",
    "topic": "string",
    "partition": "int",
    "offset": "bigint",
    "timestamp": "timestamp",
    "timestampType": "int",
}
"""The source's columns in their order, and their types in the words of SQL."""
COLUMNS = tuple(COLUMN_TYPES)
HEADERS = "headers"
"""A column that is there when it is asked for: an array of structs of HEADER_TYPES."""
HEADER_TYPES = {"key": "string", "value": "binary"}

BOOTSTRAP = "kafka.bootstrap.servers"
BOOTSTRAP_SHORT = "bootstrap.servers"
SUBSCRIBE = "subscribe"
SUBSCRIBE_PATTERN = "subscribePattern"
ASSIGN = "assign"
STARTING_OFFSETS = "startingOffsets"
ENDING_OFFSETS = "endingOffsets"
STARTING_TIMESTAMP = "startingTimestamp"
ENDING_TIMESTAMP = "endingTimestamp"
STARTING_BY_TIMESTAMP = "startingOffsetsByTimestamp"
ENDING_BY_TIMESTAMP = "endingOffsetsByTimestamp"
TIMESTAMP_STRATEGY = "startingOffsetsByTimestampStrategy"
FAIL_ON_DATA_LOSS = "failOnDataLoss"
ACCEPT_TOPIC_IDS = "acceptTopicIds"
MIN_PARTITIONS = "minPartitions"
MAX_RECORDS_PER_PARTITION = "maxRecordsPerPartition"
MIN_RECORDS_PER_PARTITION = "minRecordsPerPartition"
MAX_OFFSETS_PER_TRIGGER = "maxOffsetsPerTrigger"
MIN_OFFSETS_PER_TRIGGER = "minOffsetsPerTrigger"
MAX_TRIGGER_DELAY = "maxTriggerDelay"
INCLUDE_HEADERS = "includeHeaders"
COLUMNS_OPTION = "columns"
VALUE_FORMAT = "value.format"
VALUE_SCHEMA = "value.schema"
MODE = "mode"
CORRUPT_COLUMN = "columnNameOfCorruptRecord"
TIME_ZONE = "timeZone"
AVRO_SCHEMA = "avroSchema"
AVRO_HEADER = "avroHeader"
AVRO_SCHEMA_ID = "avroSchemaId"
REGISTRY = "schema.registry."
"""What stands in front of the keys of a registry's client."""
REGISTRY_URL = f"{REGISTRY}url"
REGISTRY_SUBJECT = f"{REGISTRY}subject"
REGISTRY_USER = f"{REGISTRY}basic.auth.user.info"
REGISTRY_TOKEN = f"{REGISTRY}bearer.auth.token"
REGISTRY_CA = f"{REGISTRY}ssl.ca.location"
GROUP_ID = "group.id"
GROUP_ID_PREFIX = "groupIdPrefix"
POLL_TIMEOUT = "kafkaConsumer.pollTimeoutMs"
NUM_RETRIES = "fetchOffset.numRetries"
RETRY_INTERVAL = "fetchOffset.retryIntervalMs"

JSON_OPTIONS = (VALUE_SCHEMA, MODE, CORRUPT_COLUMN, TIME_ZONE)
REGISTRY_OPTIONS = (REGISTRY_URL, REGISTRY_SUBJECT, REGISTRY_USER, REGISTRY_TOKEN, REGISTRY_CA)
AVRO_OPTIONS = (
    AVRO_SCHEMA,
    AVRO_HEADER,
    AVRO_SCHEMA_ID,
    VALUE_SCHEMA,
    MODE,
    *REGISTRY_OPTIONS,
)
VALUE_OPTIONS = (VALUE_FORMAT, *dict.fromkeys((*JSON_OPTIONS, *AVRO_OPTIONS)))
"""What ``value_options`` reads."""

OPTIONS = (
    OptionRow(BOOTSTRAP, "required", "`host:port,...`; `bootstrap.servers` is the same"),
    OptionRow(SUBSCRIBE, "one of the three", "topic names, separated by commas"),
    OptionRow(
        SUBSCRIBE_PATTERN,
        "one of the three",
        "a regular expression (Python's) that is found in a topic's name, anywhere, as the "
        "connector does it (`^events-[0-9]+$` for a whole name); internal topics never",
    ),
    OptionRow(ASSIGN, "one of the three", '`{"topic": [0, 1]}`'),
    OptionRow(
        STARTING_OFFSETS,
        "`earliest` in a batch, `latest` in a stream",
        '`earliest`, `latest` (streams only) or `{"topic": {"0": 23, "1": -2}}` for every'
        " partition; -2 is earliest, -1 latest. Inclusive. A stream uses it at its first start",
    ),
    OptionRow(
        ENDING_OFFSETS,
        "`latest`",
        "`latest`, or JSON as above. Exclusive",
        Use.BATCH,
    ),
    OptionRow(
        STARTING_TIMESTAMP,
        "",
        "milliseconds since 1970: from the first record that is as new, in every partition;"
        " goes before the two below and `startingOffsets`",
    ),
    OptionRow(
        ENDING_TIMESTAMP,
        "",
        "up to the first record that is as new, which is left out; to the end where there is none",
        Use.BATCH,
    ),
    OptionRow(
        STARTING_BY_TIMESTAMP,
        "",
        'timestamps for each partition: `{"topic": {"0": 1700000000000}}`',
    ),
    OptionRow(ENDING_BY_TIMESTAMP, "", "the same for the end", Use.BATCH),
    OptionRow(
        TIMESTAMP_STRATEGY,
        "`error`",
        "when no record is as new as a starting timestamp: `error`, or `latest` to begin at the"
        " end",
    ),
    OptionRow(
        FAIL_ON_DATA_LOSS,
        "`true`",
        "whether offsets that the log does not hold (any more) are an error; with `false` what is"
        " there is read, and a warning tells what is not",
    ),
    OptionRow(
        ACCEPT_TOPIC_IDS,
        "`false`",
        "`true`, for one start: topics that have other ids than the checkpoint says are the same"
        " topics with the same offsets (a cluster that was mirrored or restored); they are gone on"
        " with, and their ids noted anew",
        Use.STREAM,
        is_ours=True,
    ),
    OptionRow(
        MIN_PARTITIONS,
        "",
        "divide large ranges until there are about so many tasks",
    ),
    OptionRow(MAX_RECORDS_PER_PARTITION, "", "divide ranges with more offsets than this"),
    OptionRow(
        MIN_RECORDS_PER_PARTITION,
        "",
        "let ranges share a task until it has so many offsets; 0: a task for each; not with"
        " `minPartitions`. Else a stream whose micro-batches are quick shares up to 1,000",
        is_ours=True,
    ),
    OptionRow(
        MAX_OFFSETS_PER_TRIGGER,
        "",
        "so many offsets in one micro-batch at most, shared by the partitions in proportion to"
        " what they hold; without meaning in a batch",
    ),
    OptionRow(
        MIN_OFFSETS_PER_TRIGGER,
        "",
        "wait until there are so many offsets; without meaning in a batch and with"
        " `Trigger.AvailableNow`",
    ),
    OptionRow(
        MAX_TRIGGER_DELAY,
        "`15m`",
        "how long `minOffsetsPerTrigger` may hold back a micro-batch: `30s`, `5m`, ...",
    ),
    OptionRow(INCLUDE_HEADERS, "`false`", "adds the column `headers`"),
    OptionRow(
        COLUMNS_OPTION,
        "all",
        "the columns to have, in this order: `key,value`. Spark does not tell a Python source what"
        " a query needs: without this all columns go to the JVM, whatever is selected",
        is_ours=True,
    ),
    OptionRow(
        VALUE_FORMAT,
        "`raw`",
        "`json` or `avro`: `value` becomes a struct of typed columns, decoded before it goes to the"
        " JVM",
        is_ours=True,
    ),
    OptionRow(
        VALUE_SCHEMA,
        "",
        "the struct's columns, `id bigint, name string` or the JSON of a `StructType`; required"
        " with `value.format=json`; with `avro` the fields to have, by default all",
        is_ours=True,
    ),
    OptionRow(
        MODE,
        "`PERMISSIVE`; with `avro` `FAILFAST`",
        "what becomes of a malformed value, as in Spark's JSON reader and `from_avro`: `PERMISSIVE`"
        " (what cannot be read is null), `DROPMALFORMED` (no row), `FAILFAST` (an error with the"
        " offset)",
        is_ours=True,
    ),
    OptionRow(
        CORRUPT_COLUMN,
        "`_corrupt_record`",
        "the column of `value.schema`, if it is there, that has the text of a malformed value",
        is_ours=True,
    ),
    OptionRow(
        AVRO_SCHEMA,
        "",
        "with `value.format=avro`: the schema, as JSON, that values were written with; with"
        " `schema.registry.url` the one that they become. One of the two is required",
        is_ours=True,
    ),
    OptionRow(
        AVRO_HEADER,
        "`none`",
        "`confluent`: each Avro value begins with a zero and four bytes of schema id, as those of"
        " Confluent's serializers",
        is_ours=True,
    ),
    OptionRow(
        AVRO_SCHEMA_ID,
        "",
        "the schema id that belongs to `avroSchema`: a value with another one is malformed",
        is_ours=True,
    ),
    OptionRow(
        REGISTRY_URL,
        "",
        "with `value.format=avro`: a schema registry. Each value is read by the schema that it was"
        " written with, and becomes the newest one of the subject (or `avroSchema`)",
        is_ours=True,
    ),
    OptionRow(
        REGISTRY_SUBJECT,
        "`TOPIC-value`",
        "the subject; required with several topics, unless `avroSchema` is given",
        is_ours=True,
    ),
    OptionRow(REGISTRY_USER, "", "`name:password` at the registry", is_ours=True),
    OptionRow(REGISTRY_TOKEN, "", "or a token", is_ours=True),
    OptionRow(
        REGISTRY_CA,
        "",
        "a PEM file with the certificates to trust, on the driver and the executors",
        is_ours=True,
    ),
    OptionRow(TIME_ZONE, "`UTC`", "of times in values that do not say their own", is_ours=True),
    OptionRow(
        GROUP_ID,
        "",
        "the group as which a stream commits what it has finished, so that `ottla group` and every"
        " other tool sees its lag. Nothing is read from there: the checkpoint decides. What cannot"
        " be committed is a warning",
        Use.STREAM,
        is_ours=True,
    ),
    OptionRow(GROUP_ID_PREFIX, "", "accepted; reading needs no consumer group"),
    OptionRow(
        POLL_TIMEOUT,
        "`60000`",
        "how long a task outlasts a broker that is restarted or a leader that moves, in ms",
    ),
    OptionRow(
        NUM_RETRIES,
        "`3`",
        "with the next one: how long planning outlasts the same, and how long a topic that is"
        " missing is asked for before it is gone. A stream that has begun outlasts the first for a"
        " minute unless one of them is given",
    ),
    OptionRow(RETRY_INTERVAL, "`1000`", "in ms"),
)

PATHS = ("path", "paths")
"""What Spark makes of the argument of ``load``, ``save`` and ``start``."""
TABLE_MARK = "provider"
"""Spark adds it to the options of a table that was made by ``CREATE TABLE ... USING ottla``."""
TABLE_PROPERTIES = frozenset(
    {TABLE_MARK, "collation", "comment", "external", "is_managed_location", "location", "owner"}
)
"""What the catalog says of every table, which is no option."""
TABLE_OPTION_PREFIX = "option."
"""The options of ``CREATE TABLE`` come twice: by their names, and with this before them."""
NAMES = (*(row.name for row in OPTIONS), BOOTSTRAP_SHORT)
"""Every name but those of ``kafka.*``, which are in ``connection``."""


def options_of(given: Mapping[str, str]) -> dict[str, str]:
    """Return what a user has given, by names in lower case, without what a catalog has added."""
    values = {name.lower(): value for name, value in given.items()}
    if TABLE_MARK not in values:
        return values
    return {
        name: value
        for name, value in values.items()
        if name not in TABLE_PROPERTIES and not name.startswith(TABLE_OPTION_PREFIX)
    }


def table() -> str:
    """Return the options as the page shows them."""
    lines = ["| option | default | meaning |", "| --- | --- | --- |"]
    for row in OPTIONS:
        notes = [row.use.value] if row.use.value else []
        notes += ["not in the Kafka connector"] if row.is_ours else []
        suffix = f" ({'; '.join(notes)})" if notes else ""
        lines.append(f"| `{row.name}` | {row.default} | {row.meaning}{suffix} |")
    return "\n".join(lines) + "\n"
