"""A client goes from task to task, unless one fails with it."""

import pytest

from ottla.client.settings import ClientSettings
from ottla.spark import kept

SETTINGS = ClientSettings(client_id="kept")


@pytest.fixture(autouse=True)
def nothing_kept(monkeypatch):
    monkeypatch.setattr(kept, "_KEPT", {})


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
