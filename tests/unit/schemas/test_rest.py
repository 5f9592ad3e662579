"""Questions to a registry: as whom, how often, and what is said when it goes wrong."""

import base64
import json
from contextlib import contextmanager

import pytest

from ottla.client.library.failures import BadArgument
from ottla.env.web_server import WebServer
from ottla.schemas import RegistryError, Schema, SchemaRegistry
from ottla.schemas.rest import ATTEMPTS, Rest, access_of
from tests.schema_registries import Clock


@contextmanager
def serving(*answers):
    """Serve these answers (status and JSON or bytes), the last one again and again."""
    asked = []

    def answer(request):
        asked.append(request)
        status, said = answers[min(len(asked), len(answers)) - 1]
        return status, said if isinstance(said, bytes) else json.dumps(said).encode()

    server = WebServer(answer)
    url = f"http://127.0.0.1:{server.start()}"
    try:
        yield url, asked
    finally:
        server.stop()


def rest(url, **more):
    return Rest(access_of(url, **more), Clock())


def refused(status, said):
    with serving((status, said)) as (url, asked), pytest.raises(RegistryError) as caught:
        rest(url).ask("do it", "/subjects")
    return caught.value, len(asked)


def test_a_registry_that_is_busy_is_asked_again():
    with serving((503, b""), (500, {"error_code": 50003, "message": "no"}), (200, [1])) as (url, _):
        assert rest(url).ask("ask", "/subjects") == [1]


def test_a_registry_that_stays_away_is_given_up():
    error, count = refused(503, b"<html>")
    assert count == ATTEMPTS
    assert (error.status, error.is_retriable) == (503, True)
    assert "do it: 127.0.0.1 answers 503: <html>" in str(error)


def test_a_refusal_is_believed_at_once_and_told_in_the_registrys_words():
    said = {"error_code": 42201, "message": "Invalid schema: no name"}
    error, count = refused(422, said)
    assert count == 1
    assert (error.status, error.error_code, error.is_retriable) == (422, 42201, False)
    assert "Invalid schema: no name" in str(error)


@pytest.mark.parametrize(
    "said", [b"\xff\x00", b"[" * 5000, b'{"error_code":"x"}', b'{"error_code":1}', b"[]", b""]
)
def test_any_refusal_is_told(said):
    error, _ = refused(400, said)
    assert error.status == 400
    assert error.error_code is None


@pytest.mark.parametrize("said", [b"<html>", b"[" * 100_000, b"\xff", b""])
def test_what_is_no_json_is_no_registry(said):
    with serving((200, said)) as (url, _), pytest.raises(RegistryError, match="no JSON"):
        rest(url).ask("ask", "/subjects")


@pytest.mark.parametrize(
    "said",
    [5, None, {"id": "7"}, {"id": -1}, {"id": True}, {"id": 2**31}, {"id": 1, "version": "x"}],
)
def test_an_answer_of_another_shape_is_not_believed(said):
    with serving((200, said)) as (url, _), pytest.raises(RegistryError, match="not understood"):
        SchemaRegistry(url).register("s", Schema('"string"'))


@pytest.mark.parametrize("said", [{"schema": 5}, {"schema": "x", "references": [5]}, [], "x",
                                  {"schema": "x", "references": [{"name": "a"}]}])  # fmt: skip
def test_a_schema_of_another_shape_is_not_believed(said):
    with serving((200, said)) as (url, _), pytest.raises(RegistryError, match="not understood"):
        SchemaRegistry(url).by_id(1)


def test_the_second_url_answers_for_the_first():
    with serving((503, b"")) as (first, _), serving((200, ["a"])) as (second, _):
        assert rest(f"{first}, {second}").ask("ask", "/subjects") == ["a"]
        assert rest(["http://127.0.0.1:1", second]).ask("ask", "/subjects") == ["a"]


def test_a_registry_that_is_not_there_is_said_so():
    with pytest.raises(RegistryError) as caught:
        rest("http://127.0.0.1:1").ask("list", "/subjects")
    assert caught.value.is_retriable
    assert "Connection refused" in str(caught.value)
    assert "is the registry started" in str(caught.value)


def said_header(monkeypatch, *given, **more):
    seen = {}

    def fetch(url, *, headers, **_):
        seen.update(headers, url=url)
        return b"[]"

    monkeypatch.setattr("ottla.schemas.rest.fetch", fetch)
    rest(*given, **more).ask("ask", "/subjects")
    return seen


def test_who_asks_is_said(monkeypatch):
    basic = "Basic " + base64.b64encode(b"ann:s:p").decode()
    given = said_header(monkeypatch, "http://h:1", username="ann", password="s:p")
    assert given["Authorization"] == basic
    inside = said_header(monkeypatch, "http://ann:s%3Ap@h:1/at/")
    assert inside == {"Authorization": basic, "url": "http://h:1/at/subjects"}
    assert said_header(monkeypatch, "http://h:1", token="t")["Authorization"] == "Bearer t"
    tokens = iter("ab")
    asked = said_header(monkeypatch, "http://h:1", token=lambda: next(tokens))
    assert asked["Authorization"] == "Bearer a"
    assert "Authorization" not in said_header(monkeypatch, "http://h:1")


def test_no_secret_is_shown():
    access = access_of("http://ann:geheim@127.0.0.1:1", timeout_seconds=0.1)
    assert "geheim" not in repr(access)
    with pytest.raises(RegistryError) as caught:
        Rest(access, Clock()).ask("ask", "/subjects")
    assert "geheim" not in str(caught.value)
    with pytest.raises(BadArgument) as wrong:
        access_of("ftp://ann:geheim@h")
    assert "geheim" not in str(wrong.value)


@pytest.mark.parametrize("url", ["", "localhost:8081", "ftp://h", "http://", "http://h:x", []])
def test_what_is_no_url_is_refused(url):
    with pytest.raises(BadArgument):
        SchemaRegistry(url)


def test_two_logins_are_refused():
    with pytest.raises(BadArgument, match="either"):
        SchemaRegistry("http://h", username="ann", token="t")


def test_confluents_keys_are_understood():
    config = {
        "schema.registry.url": "http://a:1,http://b:2",
        "basic.auth.user.info": "ann:s:p",
        "schema.registry.ssl.ca.location": "/ca.pem",
        "timeout": "3",
    }
    access = SchemaRegistry.from_config(config)._rest._access
    assert access.urls == ("http://a:1", "http://b:2")
    assert access.authorization() == "Basic " + base64.b64encode(b"ann:s:p").decode()
    assert (access.tls.ca_file, access.timeout_seconds) == ("/ca.pem", 3.0)


@pytest.mark.parametrize(
    "config", [{}, {"url": "http://h", "no.such": 1}, {"url": "http://h", "timeout": "soon"},
               {"url": "http://h", "timeout": -1}, {"url": "http://h", "cache.capacity": "x"}],
)  # fmt: skip
def test_settings_that_mean_nothing_are_refused(config):
    with pytest.raises(BadArgument):
        SchemaRegistry.from_config(config)


def test_all_tries_end_in_time():
    clock = Clock()
    registry = Rest(access_of("http://127.0.0.1:1", timeout_seconds=0.15), clock)
    with pytest.raises(RegistryError):
        registry.ask("ask", "/subjects")
    assert clock.slept == pytest.approx(0.15, abs=1e-6)


def test_a_schema_is_asked_for_once():
    with serving((200, {"schema": '"string"'})) as (url, asked):
        registry = SchemaRegistry(url)
        assert registry.by_id(1) == registry.by_id(1) == Schema('"string"')
        assert len(asked) == 1
