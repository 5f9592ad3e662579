"""The question asked of the flights: how late each airline is at each hour of the day.

Answered twice: by a streaming query from the topic, into another topic and a table, and by pandas
from the file. All must agree.
"""

import json
from pathlib import Path

import pandas as pd
from kafka import KafkaConsumer
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.streaming.query import StreamingQuery

from examples.flights.data import flights_file

FLIGHT = "carrier STRING, hour INT, dep_delay INT, arr_delay INT"
"""The four of the 19 columns that the question needs; the hour is that of the planned departure."""
KEY = ["carrier", "hour"]
COLUMNS = ["carrier", "airline", "hour", "flights", "mean_dep_delay", "mean_arr_delay"]
FLIGHTS_PER_BATCH = 34_000
"""Ten micro-batches in the year."""

RELATIVE_TOLERANCE = 1e-12
"""All sides divide the same exact sums; only the last bit of a double may differ."""


def delays(spark: SparkSession, bootstrap: str, topic: str, airlines: dict[str, str]) -> DataFrame:
    """Return flights and mean delays (minutes) per airline and hour, as they come in the topic."""
    records = (
        spark.readStream.format("ottla")
        .option("kafka.bootstrap.servers", bootstrap)
        .option("subscribe", topic)
        .option("startingOffsets", "earliest")
        .option("columns", "value")
        .option("maxOffsetsPerTrigger", FLIGHTS_PER_BATCH)
        .load()
    )
    names = spark.createDataFrame(list(airlines.items()), "carrier STRING, airline STRING")
    flight = f.from_json(f.col("value").cast("string"), FLIGHT).alias("flight")
    return (
        records.select(flight)
        .select("flight.*")
        .join(f.broadcast(names), "carrier")
        .groupBy("carrier", "airline", "hour")
        .agg(
            f.count("*").alias("flights"),
            f.avg("dep_delay").alias("mean_dep_delay"),
            f.avg("arr_delay").alias("mean_arr_delay"),
        )
    )


def start(frame: DataFrame, bootstrap: str, topic: str, out: Path) -> StreamingQuery:
    """Start to write what each micro-batch changes: to the topic exactly once, and to the table.

    Ends when all that was in the topic of flights at the start is done.
    """

    def write(changed: DataFrame, number: int) -> None:
        changed.persist()
        key = f.concat_ws(" ", *KEY).alias("key")
        changed.select(key, f.to_json(f.struct(*COLUMNS)).alias("value")).write.format(
            "ottla"
        ).mode("append").options(
            **{
                "kafka.bootstrap.servers": bootstrap,
                "topic": topic,
                "delivery": "exactly-once",
                "transactional.id": topic,
            }
        ).save()
        # A batch that comes again overwrites its own directory.
        changed.coalesce(1).write.mode("overwrite").parquet(batch_directory(out, number))
        changed.unpersist()

    writer = frame.writeStream.outputMode("update").foreachBatch(write)
    checkpoint = str(out / "checkpoint")
    return writer.option("checkpointLocation", checkpoint).trigger(availableNow=True).start()


def batch_directory(out: Path, number: int) -> str:
    """Return where the rows lie that a micro-batch changed."""
    return str(out / "delays.parquet" / f"batch={number}")


def is_written(out: Path, number: int) -> bool:
    """Tell whether the table has this micro-batch."""
    return Path(batch_directory(out, number), "_SUCCESS").exists()


def by_pandas(airlines: dict[str, str]) -> pd.DataFrame:
    """Return the same table, computed by pandas from the file, without any broker or Spark."""
    flights = pd.read_csv(flights_file())
    flights["airline"] = flights["carrier"].map(airlines)
    return flights.groupby(["carrier", "airline", "hour"], as_index=False).agg(
        flights=("flight", "size"),
        mean_dep_delay=("dep_delay", "mean"),
        mean_arr_delay=("arr_delay", "mean"),
    )


def from_table(out: Path) -> pd.DataFrame:
    """Return the newest row of each airline and hour in the table that Spark wrote."""
    table = pd.read_parquet(out / "delays.parquet")
    table["batch"] = table["batch"].astype(int)
    return table.sort_values("batch").groupby(KEY, as_index=False).last()[COLUMNS]


def from_topic(bootstrap: str, topic: str) -> tuple[pd.DataFrame, int]:
    """Return the newest row of each airline and hour in the topic, and how many rows there are.

    Raises SystemExit when a row came twice: with each micro-batch the number of flights rises.
    """
    consumer = KafkaConsumer(
        topic,
        bootstrap_servers=bootstrap,
        group_id=None,
        auto_offset_reset="earliest",
        isolation_level="read_committed",
        consumer_timeout_ms=3000,
    )
    newest: dict[bytes, dict[str, object]] = {}
    count = 0
    try:
        for message in consumer:
            row = json.loads(message.value)
            before = newest.get(message.key)
            if before is not None and int(str(before["flights"])) >= row["flights"]:
                raise SystemExit(f"error: {topic} has a row twice: {row} after {before}")
            newest[message.key] = row
            count += 1
    finally:
        consumer.close()
    return pd.DataFrame(newest.values(), columns=COLUMNS), count


def require_equal(found: pd.DataFrame, expected: pd.DataFrame) -> None:
    """Raise AssertionError, telling where, unless both tables say the same."""
    pd.testing.assert_frame_equal(
        found.sort_values(KEY, ignore_index=True),
        expected.sort_values(KEY, ignore_index=True),
        check_dtype=False,
        rtol=RELATIVE_TOLERANCE,
    )
