"""When the keys of an issuer are fetched: at the start, in time, for a missing one; never often."""

import pytest

from ottla.config.oauth import TokenRules
from ottla.env.clock import ManualClock
from tests.bearer_tokens import Issuer
from tests.inline_executor import do

from ottla.node.issuer_keys import (  # isort: skip - PyJWT may be missing; the line above skips then
    MISSED_MAX,
    MISSED_SECONDS,
    ON_DEMAND_SECONDS,
    IssuerKeys,
    IssuerKeysUnavailable,
)

RULES = TokenRules(
    jwks_url="https://issuer.example/keys",
    ca_file=None,
    refresh_ms=60_000,
    retry_ms=100,
    retry_max_ms=1_000,
    skew_seconds=30,
    audiences=(),
    issuer=None,
    scope_claim="scope",
    subject_claim="sub",
)


class Endpoint:
    """Answers a fetch, or fails; remembers when it was asked."""

    def __init__(self, clock):
        self.clock, self.asked, self.is_away = clock, [], False
        self.issuer = Issuer()

    def __call__(self):
        self.asked.append(self.clock.monotonic())
        if self.is_away:
            raise OSError("issuer.example: refused")
        return self.issuer.key_set().encode()


class Jobs:
    """An executor whose jobs run when the test says so."""

    def __init__(self):
        self.waiting = []

    def submit(self, work, done, *, place=""):
        self.waiting.append((work, done))

    def run(self):
        while self.waiting:
            do(*self.waiting.pop(0))


class World:
    def __init__(self):
        self.clock, self.jobs = ManualClock(), Jobs()
        self.endpoint = Endpoint(self.clock)
        self.keys = IssuerKeys(RULES, self.endpoint, self.jobs, self.clock)

    def advance(self, seconds):
        self.clock.advance(seconds)
        self.jobs.run()

    def begin(self):
        """Do what ``begin`` does, step by step: it waits for jobs and timers only."""
        import asyncio

        async def main():
            beginning = asyncio.ensure_future(self.keys.begin())
            while not beginning.done():
                await asyncio.sleep(0)
                self.jobs.run()
                if not beginning.done() and not self.jobs.waiting and self.clock.timers():
                    self.clock.advance(0.01)
            beginning.result()

        asyncio.run(main())
        return self


@pytest.fixture
def world():
    return World()


def test_a_start_without_keys_fails_after_a_while_and_says_why(world):
    world.endpoint.is_away = True
    with pytest.raises(IssuerKeysUnavailable, match=r"https://issuer.example/keys .* refused"):
        world.begin()
    assert len(world.endpoint.asked) == 4  # at 0, 100, 300 and 700 ms
    assert world.clock.timers() == 0


def test_an_issuer_that_is_there_in_time_is_enough(world):
    world.endpoint.is_away = True
    fetch = world.endpoint.__call__

    def third_time(self=world.endpoint):
        self.is_away = len(self.asked) < 2
        return fetch()

    world.keys._fetch = third_time
    world.begin()
    assert world.keys.keys.has("first")


def test_keys_are_renewed_in_time_and_withdrawn_ones_are_gone(world):
    world.begin()
    world.endpoint.issuer.rotate("second", keep=False)
    world.advance(59)
    assert world.keys.keys.has("first")
    world.advance(1)
    assert world.keys.keys.has("second")
    assert not world.keys.keys.has("first")


def test_keys_stay_while_the_issuer_is_away(world):
    world.begin()
    world.endpoint.is_away = True
    world.advance(60)
    world.advance(0.1)
    world.advance(0.2)
    assert world.keys.keys.has("first")
    assert world.keys.fetch_failures == 3
    world.endpoint.is_away = False
    world.advance(0.4)
    assert len(world.endpoint.asked) == 5
    world.advance(59)
    assert len(world.endpoint.asked) == 5, "after a good answer it is in time again"


def test_a_missing_key_is_asked_for_once_and_then_known(world):
    world.begin()
    world.endpoint.issuer.rotate("second")
    world.keys.miss("second")
    world.keys.miss("second")
    world.jobs.run()
    assert world.keys.keys.has("second")
    assert len(world.endpoint.asked) == 2


def test_a_flood_of_unknown_ids_does_not_reach_the_issuer(world):
    world.begin()
    seconds = 50
    for second in range(seconds):
        for each in range(100):
            world.keys.miss(f"{second}-{each}")
        world.advance(1)
    assert len(world.endpoint.asked) - 1 == seconds / ON_DEMAND_SECONDS
    assert len(world.keys._missed) <= MISSED_MAX


def test_one_unknown_id_is_asked_for_once_a_minute(world):
    world.begin()
    asked = []
    for _ in range(240):
        before = len(world.endpoint.asked)
        world.keys.miss("nobody's")
        world.jobs.run()
        if len(world.endpoint.asked) > before:
            asked.append(world.clock.monotonic())
        world.advance(0.5)
    assert asked == [0.0, MISSED_SECONDS]


def test_after_the_end_nothing_is_fetched(world):
    world.begin()
    world.keys.miss("late")
    world.keys.close()
    world.jobs.run()
    world.advance(3600)
    assert len(world.endpoint.asked) == 2, "the one that was under way"
    assert world.clock.timers() == 0
