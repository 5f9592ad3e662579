"""The table of the served APIs: what it advertises can be made, and nothing is made too early."""

import pytest

import ottla.node.doors as module
from ottla.broker import Broker
from ottla.config.files import broker_config
from ottla.handlers.apis.api_versions import ApiVersions
from ottla.handlers.call import Call
from ottla.handlers.client import Client
from ottla.handlers.group_routes import GROUP_ROUTES
from ottla.handlers.routes import ROUTES
from ottla.handlers.when_ready import WhenReady
from ottla.pending import Pending, outcome_of
from ottla.protocol.apis import API_TABLE, ApiKey


@pytest.fixture
async def services(monkeypatch):
    """Return what the handlers of a running broker are made with."""
    given = []
    router_of = module.router_of

    def remember(services):
        given.append(services)
        return router_of(services)

    monkeypatch.setattr(module, "router_of", remember)
    broker = Broker(broker_config({"listeners": "PLAINTEXT://127.0.0.1:0"}), memory=True)
    await broker.start()
    yield given[0]
    await broker.stop()


async def test_every_advertised_api_has_a_handler_and_codecs_for_its_versions(services):
    router = module.router_of(services)
    served = router.served()
    assert set(served) == {*ROUTES, ApiKey.API_VERSIONS}
    for key, versions in served.items():
        api = API_TABLE[key]
        handler = ROUTES[key](services) if key in ROUTES else ApiVersions(router.served)
        assert callable(handler.handle), api.name
        if isinstance(handler, WhenReady):
            handler = handler._make()
        where = type(handler).__module__
        assert where.startswith("ottla.handlers.apis."), where
        assert api.versions.last == versions.last
        for version in range(api.versions.first, api.versions.last + 1):
            assert callable(api.request.decoder(version))
            assert callable(api.response.encoder(version))


async def test_what_needs_coordinators_waits_for_them_off_the_loop(services):
    """Whoever asks a fresh broker to join a group would else hold its loop up by 75 imports."""
    router = module.router_of(services)
    assert services.coordinators.made is None
    waiting = {key for key in router.served() if isinstance(router._handler(key), WhenReady)}
    assert services.coordinators.made is None, "no handler has made them"
    assert waiting == set(GROUP_ROUTES) - {ApiKey.INIT_PRODUCER_ID}
    key, version = ApiKey.OFFSET_COMMIT, 8
    router._compile(key, version)
    assert (key, version) not in router._routes, "the stand-in does not stay"
    await outcome_of(services.coordinators.ready())
    router._compile(key, version)
    assert (key, version) in router._directs
    assert not any(isinstance(router._handler(each), WhenReady) for each in waiting)


class Scripted:
    def __init__(self, response):
        self.response = response

    def handle(self, request, call):
        return self.response


class Unready:
    """Coordinators that a test makes ready."""

    def __init__(self):
        self.waiting = Pending()

    def ready(self):
        return self.waiting


def returned(steps):
    """Run steps to their end; return what they return."""
    try:
        while True:
            next(steps)
    except StopIteration as end:
        return end.value


def in_steps(message):
    yield None
    return message


@pytest.mark.parametrize("kind", ["message", "pending", "steps"])
def test_the_first_request_waits_for_the_coordinators_and_the_next_does_not(kind):
    message = API_TABLE[ApiKey.LIST_GROUPS].response(groups=[])
    later = Pending()
    response = {"message": message, "pending": later, "steps": in_steps(message)}[kind]
    coordinators, made = Unready(), []

    def make():
        made.append(Scripted(response))
        return made[-1]

    handler = WhenReady(coordinators, make)
    call = Call(4, None, Client("here", 1, "there", 2), None)
    both = handler.handle("first", call), handler.handle("second", call)
    assert [next(steps) for steps in both] == [coordinators.waiting] * 2
    assert not made
    assert returned(both[0]) is (later if kind == "pending" else message)
    both[1].close()
    assert len(made) == 1
    assert handler.handle("third", call) is response


@pytest.mark.parametrize("is_long", [False, True])
def test_a_long_first_request_is_served_in_the_handlers_way_for_these(is_long):
    usual, long = Pending(), Pending()

    class Long(Scripted):
        def handle_long(self, request, call):
            return long

    handler = WhenReady(Unready(), lambda: Long(usual))
    steps = (handler.handle_long if is_long else handler.handle)("first", None)
    next(steps)
    assert returned(steps) is (long if is_long else usual)
