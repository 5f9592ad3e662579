"""A client and a decoder go from task to task, unless one fails with them."""

import pytest

from ottla.client.wire.settings import ClientSettings
from ottla.records.builder import build_batch
from ottla.records.columnar.decoder import TARGET_BYTES
from ottla.records.record import Record
from ottla.spark.offsets import OffsetRange
from ottla.spark.reading import kept

SETTINGS = ClientSettings(client_id="kept")


@pytest.fixture(autouse=True)
def nothing_kept(monkeypatch):
    monkeypatch.setattr(kept, "_KEPT", {})
    monkeypatch.setattr(kept, "_DECODERS", {})


def test_the_next_task_has_the_client_of_the_one_before():
    with kept.kept_client(SETTINGS) as first:
        pass
    with kept.kept_client(SETTINGS) as second:
        assert second is first


def test_other_settings_are_another_client():
    with kept.kept_client(SETTINGS) as first:
        pass
    with kept.kept_client(ClientSettings(client_id="other")) as second:
        assert second is not first


def test_clients_of_many_settings_are_closed_again():
    """40 queries with settings of their own left 40 connections in each worker."""
    closed = []
    for number in range(40):
        with kept.kept_client(ClientSettings(client_id=f"c{number}")) as client:
            client.close = lambda number=number: closed.append(number)
    assert len(kept._KEPT) == kept.KEPT_MAX
    assert closed == list(range(40 - kept.KEPT_MAX))
    with kept.kept_client(ClientSettings(client_id="c36")):
        pass
    assert len(kept._KEPT) == kept.KEPT_MAX
    assert closed == list(range(40 - kept.KEPT_MAX)), "what is used again stays"


def test_two_tasks_at_once_have_a_client_each():
    with kept.kept_client(SETTINGS) as first, kept.kept_client(SETTINGS) as second:
        assert second is not first


@pytest.mark.parametrize("error", [GeneratorExit, ValueError])
def test_a_task_that_fails_or_is_stopped_leaves_none(error):
    with pytest.raises(error), kept.kept_client(SETTINGS) as first:
        raise error
    with kept.kept_client(SETTINGS) as second:
        assert second is not first


def test_a_forked_worker_does_not_share_connections(monkeypatch):
    with kept.kept_client(SETTINGS) as first:
        pass
    monkeypatch.setattr("os.getpid", lambda: 0)
    with kept.kept_client(SETTINGS) as second:
        assert second is not first


def test_the_next_task_decodes_into_the_buffers_of_the_one_before():
    with kept.kept_decoder(("key", "value")) as first:
        pass
    with kept.kept_decoder(("key", "value")) as second:
        assert second is first


def test_only_the_last_decoder_is_kept():
    with kept.kept_decoder(("key",)) as first:
        pass
    with kept.kept_decoder(("value",)) as other:
        assert other is not first
    assert len(kept._DECODERS) == 1
    with kept.kept_decoder(("key",)) as second:
        assert second is not first


def test_two_tasks_at_once_have_a_decoder_each():
    with kept.kept_decoder(("key",)) as first, kept.kept_decoder(("key",)) as second:
        assert second is not first


@pytest.mark.parametrize("error", [GeneratorExit, ValueError])
def test_a_decoder_with_rows_of_a_task_that_failed_is_not_used_again(error):
    with pytest.raises(error), kept.kept_decoder(("key",)) as first:
        raise error
    with kept.kept_decoder(("key",)) as second:
        assert second is not first


def test_a_decoder_that_a_huge_record_has_made_huge_is_not_kept():
    records = memoryview(
        build_batch([Record(timestamp=0, key=None, value=bytes(TARGET_BYTES + 1))])
    )
    with kept.kept_decoder(("value",)) as first:
        assert [each.num_rows for each in first.decode(records, OffsetRange("t", 0, 0, 1))] == [1]
        assert first.rest() is None
    with kept.kept_decoder(("value",)) as second:
        assert second is not first
