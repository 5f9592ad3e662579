"""No API is served before somebody has decided who may ask it."""

import subprocess
import sys
from importlib import import_module

import pytest

from ottla.broker import Broker
from ottla.config.authorization import STANDARD_AUTHORIZER
from ottla.config.files import broker_config
from ottla.handlers import routes
from ottla.handlers.authorization.guarded import Guarded, Node
from ottla.handlers.authorization.table import MODULES, UNGUARDED, behind_guards
from ottla.ids import NodeId
from ottla.metadata.image import MetadataImage
from ottla.metadata.keys import Keys
from ottla.protocol.apis import ApiKey

OPTIONS = {
    "listeners": "PLAINTEXT://127.0.0.1:0",
    "authorizer.class.name": STANDARD_AUTHORIZER,
}
NODE = Node(NodeId(1), MetadataImage(Keys("test")), auto_create=True, may_delete=True)


async def test_every_served_api_stands_behind_a_guard(monkeypatch):
    routers = []
    router_of = routes.router_of

    def remember(services):
        routers.append(router_of(services))
        return routers[-1]

    monkeypatch.setattr(routes, "router_of", remember)
    monkeypatch.setattr("ottla.node.doors.router_of", remember)
    broker = Broker(broker_config(OPTIONS), memory=True)
    await broker.start()
    await broker.stop()
    handlers = {key: make() for key, make in routers[0]._makers.items()}
    assert ApiKey.CREATE_ACLS in handlers
    unguarded = {key for key, handler in handlers.items() if not isinstance(handler, Guarded)}
    assert unguarded == UNGUARDED.keys()


def test_an_api_that_nobody_has_decided_about_is_not_served():
    new = {ApiKey.ADD_RAFT_VOTER: object()}
    with pytest.raises(LookupError, match="ADD_RAFT_VOTER"):
        behind_guards(new, NODE)


def test_each_guard_stands_in_the_module_that_the_table_names():
    for name in set(MODULES.values()):
        module = import_module(f"ottla.handlers.authorization.{name}")
        wanted = {key for key, of in MODULES.items() if of == name}
        assert module.guards_of(NODE).keys() == wanted
    assert not MODULES.keys() & UNGUARDED.keys()


def test_a_broker_without_an_authorizer_loads_nothing_of_it():
    code = """
import asyncio, sys
from ottla.broker import Broker
from ottla.config.files import broker_config
async def main():
    broker = Broker(broker_config({"listeners": "PLAINTEXT://127.0.0.1:0"}), memory=True)
    await broker.start()
    await broker.stop()
asyncio.run(main())
parts = ("handlers.authorization", "security.access", "security.acl", "security.authorizer",
         "cluster.acls", "metadata.acl_values", "node.permissions", "handlers.apis.acls")
print([name for name in sys.modules if name.removeprefix("ottla.").startswith(parts)
       and name != "ottla.handlers.apis.acls_off"])
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True)
    assert done.stdout.decode().strip() == "[]"
