"""Making ``format("ottla")`` known to a session that does not find it by itself.

Spark imports every ``pyspark_*`` module it can see, once per session. A session that began before
Ottla was installed is told by hand.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def register(spark: "SparkSession") -> None:
    """Make ``format("ottla")`` known to ``spark``, of Spark or of Spark Connect. Harmless twice."""
    from ottla.spark.planning.source import OttlaDataSource

    spark.dataSource.register(OttlaDataSource)
