"""The page on hostile clients says of each API what bounds its answer, in options that exist."""

import re
from pathlib import Path

import pytest

import ottla.node.doors as module
from ottla.broker import Broker
from ottla.config.broker import BROKER_TABLE
from ottla.config.files import broker_config
from ottla.config.topic import TOPIC_TABLE
from ottla.protocol.apis import API_TABLE

PAGE = Path(__file__).parents[3] / "docs" / "hostile-clients.md"


@pytest.fixture
def rows():
    (section,) = re.findall(r"## What bounds an answer\n(.*?)\n## ", PAGE.read_text(), re.DOTALL)
    return dict(re.findall(r"^\| (\w+) \| (.+) \|$", section, re.MULTILINE)[1:])


async def test_the_page_names_the_bound_of_every_served_api(rows, monkeypatch):
    routers = []
    router_of = module.router_of

    def remember(services):
        routers.append(router_of(services))
        return routers[-1]

    monkeypatch.setattr(module, "router_of", remember)
    broker = Broker(broker_config({"listeners": "PLAINTEXT://127.0.0.1:0"}), memory=True)
    await broker.start()
    await broker.stop()
    served = {API_TABLE[key].name for key in routers[0].served()}
    assert set(rows) == served


def test_the_options_that_are_named_exist(rows):
    named = {name for bound in rows.values() for name in re.findall(r"`([a-z.]+\.[a-z.]+)`", bound)}
    assert "ottla.answer.max.elements" in named
    assert {name for name in named if name not in BROKER_TABLE and name not in TOPIC_TABLE} == set()
