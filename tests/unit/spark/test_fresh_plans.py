"""Frames that plan anew: a Spark that is another than this knows is left as it is."""

import logging
from types import SimpleNamespace

import pytest

pytest.importorskip("pyspark", reason="extra 'spark' is not installed")

from py4j.protocol import Py4JError

from ottla.spark.fresh_plans import plan_each_query_anew


@pytest.mark.parametrize(
    "error",
    [
        Py4JError("no such field"),
        TypeError("'JavaPackage' object is not callable"),  # py4j, of a class that is not there
        AttributeError("_jsparkSession"),
    ],
)
def test_another_spark_is_left_as_it_is_with_a_warning(caplog, error):
    class Session:
        _jvm = SimpleNamespace()

        @property
        def _jsparkSession(self):  # noqa: N802 - Spark's name
            raise error

    with caplog.at_level(logging.WARNING, "ottla.spark"):
        assert not plan_each_query_anew(Session())
    assert "load it anew" in caplog.text
