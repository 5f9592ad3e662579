"""PySpark over TLS with a password: what its source and sink say when they are refused.

What they do when they are let in, ``to_parquet`` too, is in ``test_serve_secure``.
"""

import time

import pytest

from tests.certificates import certificates
from tests.secured import COMING, secured_peer
from tools.ottla_peer import OttlaPeer

pytestmark = [
    pytest.mark.slow,
    pytest.mark.spark,
    pytest.mark.timeout(300),
    pytest.mark.xdist_group("spark"),  # one session, in one worker
]


@pytest.fixture(scope="module")
def peer(tmp_path_factory):
    topics = [f"spark-{way}" for way in COMING]
    with secured_peer(OttlaPeer, tmp_path_factory.mktemp("spark") / "data", topics) as peer:
        yield peer


@pytest.fixture
def options(peer):
    def options(way, password=None):
        protocol, mechanism, user, right = COMING[way]
        made = certificates()
        given = {
            "bootstrap.servers": peer.secured[protocol],
            "security.protocol": protocol,
            "ssl.ca.location": str(made / "ca.pem"),
        }
        if mechanism is None:
            given["ssl.certificate.location"] = str(made / "client.crt")
            given["ssl.key.location"] = str(made / "client.key")
        else:
            given |= {"sasl.mechanism": mechanism, "sasl.username": user}
            given["sasl.password"] = password or right
        return {f"kafka.{name}": text for name, text in given.items()}

    return options


def written(spark, options, topic, *values):
    rows = spark.createDataFrame([(value,) for value in values], "value string").coalesce(1)
    rows.write.format("ottla").mode("append").options(**options, topic=topic).save()


def read(spark, options, topic):
    frame = spark.read.format("ottla").options(**options, subscribe=topic).load()
    return sorted(len(row.value) for row in frame.select("value").collect())


@pytest.mark.parametrize("way", COMING)
def test_who_may_come_in_writes_and_reads(spark, options, way):
    written(spark, options(way), f"spark-{way}", "v", "vv")
    assert read(spark, options(way), f"spark-{way}") == [1, 2]


@pytest.mark.parametrize("way", ["plain", "scram-512"])
def test_a_wrong_password_is_told_and_not_shown(spark, options, way):
    for ask in (
        lambda: written(spark, options(way, "not this"), f"spark-{way}", "v"),
        lambda: read(spark, options(way, "not this"), f"spark-{way}"),
    ):
        with pytest.raises(Exception, match=r"(?i)authentication failed|credentials") as refused:
            ask()
        assert "not this" not in str(refused.value)


def test_a_denied_topic_is_told(spark, options):
    for ask in (
        lambda: written(spark, options("scram-512"), "denied", "v"),
        lambda: read(spark, options("scram-512"), "denied"),
    ):
        with pytest.raises(Exception, match=r"(?i)TOPIC_AUTHORIZATION_FAILED|not authorized"):
            ask()


def test_a_sink_over_its_quota_waits_and_loses_nothing(spark, options):
    topic, began = "spark-plain", time.monotonic()
    before = len(read(spark, options("plain"), topic))
    # Several requests of one connection: the one behind an answer that throttles has to wait.
    values = ["v" * 400_000] * 5
    written(spark, options("plain") | {"kafka.client.id": "throttled"}, topic, *values)
    assert time.monotonic() - began > 1.0
    assert len(read(spark, options("plain"), topic)) == before + len(values)
