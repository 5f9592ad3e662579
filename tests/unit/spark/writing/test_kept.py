"""Connections and the id to write under go from task to task, unless one fails with them."""

import pytest

from ottla.client.wire.lanes import EPOCH_MAX
from ottla.client.wire.sending import ProducerIdentity
from ottla.client.wire.settings import Address, ClientSettings
from ottla.ids import ProducerId
from ottla.spark.writing import kept

SETTINGS = ClientSettings(client_id="kept")
LEADER = Address("leader", 1)


class Connection:
    def __init__(self, address=LEADER, settings=None):
        self.address = address
        self.has_answer = False
        self.is_closed = False

    def close(self):
        self.is_closed = True


class Producer:
    def __init__(self, epoch=None, connections=()):
        self._used = None if epoch is None else ProducerIdentity(ProducerId(7), epoch)
        self._connections = list(connections)

    def hand_over(self):
        return self._connections, self._used


@pytest.fixture(autouse=True)
def nothing_kept(monkeypatch):
    monkeypatch.setattr(kept, "_KEPT", {})
    monkeypatch.setattr(kept, "BlockingConnection", Connection)


def test_the_next_task_has_the_connections_of_the_one_before():
    connection = Connection()
    with kept.kept_standing(SETTINGS) as first:
        first.take_over(Producer(connections=[connection]))
    with kept.kept_standing(SETTINGS) as second:
        assert second is first
        assert second.connect(LEADER, SETTINGS) is connection
        assert second.connect(LEADER, SETTINGS) is not connection, "a retry wants a new one"


def test_a_connection_that_the_broker_has_ended_is_not_written_to():
    connection = Connection()
    with kept.kept_standing(SETTINGS) as first:
        first.take_over(Producer(connections=[connection]))
    connection.has_answer = True
    with kept.kept_standing(SETTINGS) as second:
        assert second.connect(LEADER, SETTINGS) is not connection
    assert connection.is_closed


def test_the_clients_ended_connection_is_not_asked_again():
    connection = Connection()
    with kept.kept_standing(SETTINGS) as first:
        first.client._connections[LEADER] = connection
    with kept.kept_standing(SETTINGS) as second:
        assert second.client._connections[LEADER] is connection
    connection.has_answer = True
    with kept.kept_standing(SETTINGS) as third:
        assert not third.client._connections
    assert connection.is_closed


def test_each_task_writes_in_an_epoch_of_its_own():
    """Two tasks that number from 0 in one epoch: the second's rows pass for the first's again."""
    with kept.kept_standing(SETTINGS) as standing:
        assert standing.identity is None
        standing.take_over(Producer(epoch=3))
        assert standing.identity == ProducerIdentity(ProducerId(7), 4)
        standing.take_over(Producer())
        assert standing.identity.epoch == 4, "nothing was written"


def test_an_id_does_not_outlast_the_connections_to_the_cluster_that_gave_it():
    """A new cluster at the address gives the same ids to others, whom a later epoch would fence."""
    connection = Connection()
    with kept.kept_standing(SETTINGS) as first:
        first.client._connections[LEADER] = connection
        first.take_over(Producer(epoch=3))
    with kept.kept_standing(SETTINGS) as second:
        assert second.identity is not None
    connection.has_answer = True
    with kept.kept_standing(SETTINGS) as third:
        assert third.identity is None


@pytest.mark.parametrize("sending", [{"acks": 0}, {"acks": 1}, {"is_idempotent": False}])
def test_rows_that_are_not_to_be_numbered_do_not_go_under_a_kept_id(sending, monkeypatch):
    """With acks=0 nobody hears that a batch was lost, and each later number would be refused."""
    write = pytest.importorskip("ottla.spark.writing.write", reason="extra 'spark'")
    from ottla.client.blocking.producer import SendingSettings
    from ottla.spark.writing.write_settings import WriteOptions

    taken = []
    monkeypatch.setattr(write, "BlockingProducer", lambda *given, **_: taken.append(given[3]))
    with kept.kept_standing(SETTINGS) as standing:
        standing.identity = ProducerIdentity(ProducerId(7), 4)
        for settings in (SendingSettings(), SendingSettings(**sending)):
            write.RowsWriter(SETTINGS, WriteOptions(topic="t", sending=settings), standing=standing)
    assert taken == [ProducerIdentity(ProducerId(7), 4), None]


def test_after_the_last_epoch_comes_another_id():
    with kept.kept_standing(SETTINGS) as standing:
        standing.take_over(Producer(epoch=EPOCH_MAX - 1))
        assert standing.identity.epoch == EPOCH_MAX
        standing.take_over(Producer(epoch=EPOCH_MAX))
        assert standing.identity is None


@pytest.mark.parametrize("error", [GeneratorExit, ValueError])
def test_a_task_that_fails_or_is_stopped_leaves_nothing(error):
    connections = [Connection(), Connection()]
    with kept.kept_standing(SETTINGS) as first:
        first.take_over(Producer(epoch=0, connections=connections[:1]))
        first.client._connections[LEADER] = connections[1]
    with pytest.raises(error), kept.kept_standing(SETTINGS):
        raise error
    assert all(each.is_closed for each in connections)
    with kept.kept_standing(SETTINGS) as second:
        assert second is not first


def test_what_stands_for_many_settings_is_closed_again():
    connections = [Connection() for _ in range(kept.KEPT_MAX + 3)]
    for number, each in enumerate(connections):
        with kept.kept_standing(ClientSettings(client_id=f"c{number}")) as standing:
            standing.take_over(Producer(connections=[each]))
    assert [each.is_closed for each in connections] == [True] * 3 + [False] * kept.KEPT_MAX


def test_two_tasks_at_once_have_each_their_own():
    with kept.kept_standing(SETTINGS) as first, kept.kept_standing(SETTINGS) as second:
        assert second is not first


def test_a_forked_worker_does_not_write_on_its_parents_connections(monkeypatch):
    with kept.kept_standing(SETTINGS) as first:
        pass
    monkeypatch.setattr("os.getpid", lambda: 0)
    with kept.kept_standing(SETTINGS) as second:
        assert second is not first
