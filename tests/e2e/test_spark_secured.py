"""PySpark over TLS by each way: its source, sink and ``to_parquet``, let in, refused, throttled.

The same at Ottla and at Apache Kafka.
"""

import time

import pytest

from tests.certificates import certificates
from tests.secured import COMING, secured_peer, token_of

pytestmark = [
    pytest.mark.slow,
    pytest.mark.spark,
    pytest.mark.timeout(300),
    pytest.mark.xdist_group("spark"),  # one session, in one worker
]


WAYS_WRONG = ("plain", "scram-512", "token")


@pytest.fixture(scope="module", params=["ottla", pytest.param("kafka", marks=pytest.mark.kafka)])
def peer(request, tmp_path_factory):
    if request.param == "kafka":
        from tools.kafka_peer import KafkaPeer as Kind

        request.getfixturevalue("kafka_libs")
    else:
        from tools.ottla_peer import OttlaPeer as Kind

    topics = [*(f"spark-{way}" for way in COMING), "spark-throttled"]
    with secured_peer(Kind, tmp_path_factory.mktemp("spark") / "data", topics) as peer:
        yield peer


@pytest.fixture
def options(peer, tmp_path):
    def options(way, *, wrong=False):
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
        elif way == "token":
            token = tmp_path / f"token-{wrong}"
            token.write_text(token_of(peer, user, is_forged=wrong))
            given |= {"sasl.mechanism": mechanism}
            given["sasl.oauthbearer.token.endpoint.url"] = token.as_uri()
        else:
            given |= {"sasl.mechanism": mechanism, "sasl.username": user}
            given["sasl.password"] = "not this" if wrong else right
        return {f"kafka.{name}": text for name, text in given.items()}

    return options


def written(spark, options, topic, *values):
    rows = spark.createDataFrame([(value,) for value in values], "value string").coalesce(1)
    rows.write.format("ottla").mode("append").options(**options, topic=topic).save()


def read(spark, options, topic):
    frame = spark.read.format("ottla").options(**options, subscribe=topic).load()
    return sorted(len(row.value) for row in frame.select("value").collect())


def exported(spark, options, topic, path):
    from ottla.spark import to_parquet

    given = {"bootstrap": options["kafka.bootstrap.servers"], "options": options}
    return to_parquet(topic, str(path), **given, spark=spark).rows


@pytest.mark.parametrize("way", COMING)
def test_who_may_come_in_writes_reads_and_exports(spark, options, way, tmp_path):
    written(spark, options(way), f"spark-{way}", "v", "vv")
    assert read(spark, options(way), f"spark-{way}") == [1, 2]
    assert exported(spark, options(way), f"spark-{way}", tmp_path / "table") == 2


@pytest.mark.parametrize("way", WAYS_WRONG)
def test_a_wrong_password_or_token_is_told_and_not_shown(spark, options, way, tmp_path):
    given = options(way, wrong=True)
    secret = given.get("kafka.sasl.password") or (tmp_path / "token-True").read_text()
    for ask in (
        lambda: written(spark, given, f"spark-{way}", "v"),
        lambda: read(spark, given, f"spark-{way}"),
        lambda: exported(spark, given, f"spark-{way}", tmp_path / "table"),
    ):
        with pytest.raises(
            Exception, match=r"(?i)authentication failed|credentials|invalid_token"
        ) as refused:
            ask()
        assert secret not in str(refused.value)


@pytest.mark.parametrize("way", ["scram-512", "token"])
def test_a_denied_topic_is_told(spark, options, way, tmp_path):
    for ask in (
        lambda: written(spark, options(way), "denied", "v"),
        lambda: read(spark, options(way), "denied"),
        lambda: exported(spark, options(way), "denied", tmp_path / "table"),
    ):
        with pytest.raises(Exception, match=r"(?i)TOPIC_AUTHORIZATION_FAILED|not authorized"):
            ask()


def test_a_sink_over_its_quota_waits_and_loses_nothing(spark, options):
    topic, began = "spark-throttled", time.monotonic()
    # Several requests of one connection: the one behind an answer that throttles has to wait.
    values = ["v" * 400_000] * 5
    written(spark, options("plain") | {"kafka.client.id": "throttled"}, topic, *values)
    assert time.monotonic() - began > 1.0
    assert read(spark, options("plain"), topic) == [400_000] * 5
