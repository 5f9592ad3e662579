"""The question asked of the flights: how late each airline is in each month.

Answered twice: by Spark from the topic, and by pandas from the file. They must agree.
"""

import os
import sys
from pathlib import Path

import pandas as pd
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from examples.flights.data import flights_file

FLIGHT_COLUMNS = "carrier STRING, month INT, dep_delay INT, arr_delay INT"
"""The four of the 19 columns that the question needs."""

QUIET = Path(__file__).parent / "log4j2.properties"

RELATIVE_TOLERANCE = 1e-12
"""Both sides divide the same exact sums; only the last bit of a double may differ."""


def spark_session() -> SparkSession:
    """Start Spark on this machine alone. No JAR is named: ``ottla`` is found by itself."""
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)  # not just any python3 on the PATH
    session: SparkSession = (
        SparkSession.builder.appName("flights")
        .master("local[2]")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.extraJavaOptions", f"-Dlog4j2.configurationFile={QUIET.as_uri()}")
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.sql.shuffle.partitions", "4")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .getOrCreate()
    )
    return session


def mean_delays(spark: SparkSession, bootstrap: str, topic: str) -> DataFrame:
    """Return flights and mean delays (minutes) per carrier and month, read from the topic."""
    records = (
        spark.read.format("ottla")
        .option("kafka.bootstrap.servers", bootstrap)
        .option("subscribe", topic)
        .load()
    )
    flight = f.from_json(f.col("value").cast("string"), FLIGHT_COLUMNS).alias("flight")
    return (
        records.select(flight)
        .select("flight.*")
        .groupBy("carrier", "month")
        .agg(
            f.count("*").alias("flights"),
            f.avg("dep_delay").alias("mean_dep_delay"),
            f.avg("arr_delay").alias("mean_arr_delay"),
        )
        .orderBy("carrier", "month")
    )


def mean_delays_by_pandas() -> pd.DataFrame:
    """Return the same table, computed by pandas from the file without any broker."""
    flights = pd.read_csv(flights_file())
    table = flights.groupby(["carrier", "month"], as_index=False).agg(
        flights=("flight", "size"),
        mean_dep_delay=("dep_delay", "mean"),
        mean_arr_delay=("arr_delay", "mean"),
    )
    return table.sort_values(["carrier", "month"], ignore_index=True)


def read_result(parquet: Path) -> pd.DataFrame:
    """Return the table as Spark wrote it, read by pandas."""
    table = pd.read_parquet(parquet)
    return table.sort_values(["carrier", "month"], ignore_index=True)


def require_equal(found: pd.DataFrame, expected: pd.DataFrame) -> None:
    """Raise AssertionError, telling where, unless both tables say the same."""
    pd.testing.assert_frame_equal(found, expected, check_dtype=False, rtol=RELATIVE_TOLERANCE)
