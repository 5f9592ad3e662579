"""Named scenarios: what several faults make together, drawn from a seed. Pure.

Each returns rules as ``Server`` takes them. They count requests, not seconds, so that the same seed
plans the same for every run of a test. Knows nothing of who asks.
"""

from collections.abc import Sequence
from typing import Any

from ottla.env.rng import Rng
from ottla.errors import ErrorCode
from ottla.protocol.apis import ApiKey

Plan = dict[str, Any]
"""The fields of a ``rules.Rule``, as JSON."""

REQUESTS_MIN = 3
"""So many requests at least are served between two restarts."""
REQUESTS_MORE = 12
"""And up to so many more."""
BURST_MAX = 3
"""A leader that has moved refuses so many requests of an API at most."""
PAUSES = 64
"""So many lengths of a sync are drawn; they are used in turn."""


def rolling_restart(rng: Rng, *, times: int, away_seconds: float) -> list[Plan]:
    """Return ``times`` restarts, each behind some requests of the application; half are kills."""
    plans = []
    nth = 0
    for _ in range(times):
        nth += REQUESTS_MIN + rng.random_below(REQUESTS_MORE)
        kill = rng.random_below(2) == 1
        plans.append(
            {
                "action": "restart",
                "api_key": None,
                "nth": nth,
                "kill": kill,
                "after": rng.random_below(2) == 1,
                "seconds": away_seconds,
            }
        )
    return plans


def leader_moves(rng: Rng, *, times: int, topic: str | None, partition: int | None) -> list[Plan]:
    """Return ``times`` moves: produces and fetches refused for a while, metadata without a leader.

    The first produce and the first fetch are served: a client knows the leader by then.
    """
    plans = []
    for api, code in (
        (ApiKey.PRODUCE, ErrorCode.NOT_LEADER_OR_FOLLOWER),
        (ApiKey.FETCH, ErrorCode.NOT_LEADER_OR_FOLLOWER),
        (ApiKey.METADATA, ErrorCode.LEADER_NOT_AVAILABLE),
    ):
        nth = 1
        for _ in range(times):
            nth += 1 + rng.random_below(3)
            plan: Plan = {
                "action": "error",
                "api_key": api.value,
                "code": code.value,
                "topic": topic,
                "partition": None if api is ApiKey.METADATA else partition,
                "nth": nth,
                "times": 1 + rng.random_below(BURST_MAX),
            }
            plans.append(plan)
            nth += plan["times"]
    return plans


def zombie_producer(rng: Rng, *, transactional_id: str | None, within: int) -> list[Plan]:
    """Return that another producer takes a transactional id over, amid its first requests."""
    return [
        {
            "action": "fence",
            "api_key": None,
            "transactional_id": transactional_id,
            "nth": 1 + rng.random_below(within),
        }
    ]


def slow_disk(rng: Rng, *, up_to_seconds: float) -> Sequence[float]:
    """Return how many seconds more the fsyncs take, in turn."""
    return [up_to_seconds * rng.random_below(1_001) / 1_000 for _ in range(PAUSES)]
