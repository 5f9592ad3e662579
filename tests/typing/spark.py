"""What PySpark users call says what it wants, without Spark being imported."""

from typing import assert_type

from ottla import spark
from ottla.spark import Exported


def an_export_says_what_it_did() -> None:
    done = spark.to_parquet("orders", "out", bootstrap="127.0.0.1:9092", partition_by=["topic"])
    assert_type(done, Exported)
    spark.to_parquet("orders", "out")  # type: ignore[call-arg]
    spark.to_parquet("orders", "out", "127.0.0.1:9092")  # type: ignore[call-arg]


def a_session_takes_texts() -> None:
    spark.session("name", master="local[2]", confs={"spark.ui.enabled": "false"})
    spark.session("name", confs={"spark.ui.enabled": False})  # type: ignore[dict-item]


def a_name_that_is_not_there_is_an_error() -> None:
    spark.to_avro("orders")  # type: ignore[attr-defined]
