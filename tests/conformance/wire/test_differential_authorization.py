"""Random requests under random ACLs to Ottla and a live Apache Kafka: the same answers."""

import pytest

from tests.authorizing import OPTIONS, SecuredPlay, random_play

pytestmark = [pytest.mark.kafka, pytest.mark.slow, pytest.mark.timeout(300)]
ROUNDS, REQUESTS = 12, 80


@pytest.fixture(scope="module")
def brokers(tmp_path_factory, kafka_libs):
    """The addresses of both: of the open listener and of the one with passwords."""
    from tools.kafka_peer import KafkaPeer
    from tools.ottla_peer import OttlaPeer

    directory = tmp_path_factory.mktemp("authorization")
    peers = [
        made(directory / made.name, OPTIONS, protocols=("SASL_PLAINTEXT",))
        for made in (OttlaPeer, KafkaPeer)
    ]
    try:
        for peer in peers:
            peer.start()
        yield [f"{peer.bootstrap} {peer.secured['SASL_PLAINTEXT']}" for peer in peers]
    finally:
        for peer in peers:
            peer.kill9()


def compare(script, brokers):
    """Play the script on both; return how many answers there were, and the differences."""
    transcripts = []
    for addresses in brokers:
        with SecuredPlay(addresses) as play:
            script(play)
            transcripts.append(play.steps)
    pairs = list(zip(*transcripts, strict=True))
    return len(pairs), [
        f"{mine.label} {mine.request}\n  {mine.answer}\n  {theirs.answer}"
        for mine, theirs in pairs
        if mine != theirs
    ]


@pytest.mark.parametrize("seed", [1, 2])
def test_random_requests_under_random_acls(brokers, seed):
    count, differences = compare(random_play(seed, ROUNDS, REQUESTS), brokers)
    assert count == ROUNDS * (REQUESTS + 1)
    assert not differences, "\n".join(differences)
