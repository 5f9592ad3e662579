"""The table of the served APIs: what it advertises can be made, and nothing is made too early."""

import pytest

import ottla.node.doors as module
from ottla.broker import Broker
from ottla.config.files import broker_config
from ottla.handlers.apis.api_versions import ApiVersions
from ottla.handlers.routes import ROUTES
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
        where = type(handler).__module__
        assert where.startswith("ottla.handlers.apis."), where
        assert api.versions.last == versions.last
        for version in range(api.versions.first, api.versions.last + 1):
            assert callable(api.request.decoder(version))
            assert callable(api.response.encoder(version))
