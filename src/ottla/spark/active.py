"""Which session a thread's writes belong to, where Spark has lost that.

Spark 4.3 looks for sources in Python in the session that is active in the thread of its JVM, for
``df.write`` only there. A thread of the user's own has none; neither has any thread of Python after
an interrupt (Ctrl-C in a notebook), since it gets another thread of the JVM then: "Failed to find
the data source: ottla". The driver's own Python, or the function of ``foreachBatch``.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def make_active(spark: "SparkSession") -> None:
    """Let this thread find the session's sources. Harmless when it does, and over Connect."""
    java_session = getattr(spark, "_jsparkSession", None)
    if java_session is not None:  # a classic one; over Connect there is nothing to do
        java_class = spark._get_j_spark_session_class(spark._jvm)  # noqa: SLF001
        java_class.setActiveSession(java_session)
