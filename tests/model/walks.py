"""Ways through the model: at random, all up to a depth, and along a given one."""

import random
from collections import deque

from tests.model.happenings import OFTEN, RARE, happenings
from tests.model.protocol import Violation, check, first_state

STEPS = 70
RARELY = 0.15


def possible(state):
    """Return what may happen, by name, in an order that does not depend on hashes."""
    return dict(sorted(happenings(state)))


def walk(seed, steps=STEPS):
    """Go one way at random; return how many records were acknowledged and the names on the way.

    Each way has its own taste: some things happen on it never, others all the time.

    Raises Broken.
    """
    rng = random.Random(seed)
    weights = {kind: rng.choice((0.0, RARELY, RARELY, 1.0)) for kind in RARE}
    weights |= {kind: rng.choice((0.3, 1.0, 2.0)) for kind in OFTEN}
    state = first_state()
    names = []
    for _ in range(steps):
        ways = possible(state)
        if not ways:
            break  # Nobody is left who may act.
        chances = [weights[name.partition(" ")[0]] for name in ways]
        if not any(chances):
            break
        name = rng.choices(list(ways), chances)[0]
        names.append(name)
        try:
            state = ways[name](state)
            check(state)
        except (Violation, AssertionError) as violation:
            raise Broken(str(violation), names) from violation
    return len(state.committed), names


class Broken(Exception):
    """A way on which the protocol did not hold."""

    def __init__(self, what, names):
        super().__init__(f"{what}, by: {', '.join(names)}")
        self.what = what
        self.names = names


def follow(names):
    """Go a given way, without the steps that are impossible; return the steps that were taken.

    Raises Broken.
    """
    state = first_state()
    taken = []
    for name in names:
        step = possible(state).get(name)
        if step is None:
            continue
        taken.append(name)
        try:
            state = step(state)
            check(state)
        except (Violation, AssertionError) as violation:
            raise Broken(str(violation), taken) from violation
    return taken


def shortened(names):
    """Return the shortest way found that still breaks the protocol, without needless steps."""
    size = max(1, len(names) // 2)
    while size:
        at = 0
        while at < len(names):
            try:
                follow(names[:at] + names[at + size :])
            except Broken as broken:
                names = broken.names
            else:
                at += size
        size //= 2
    return names


def everywhere(states_max):
    """Visit states breadth first; return how many and how deep. Raises Broken."""
    start = first_state()
    seen = {start}
    queue = deque([(start, ())])
    depth = 0
    while queue and len(seen) < states_max:
        state, way = queue.popleft()
        depth = len(way)
        for name, step in happenings(state):
            try:
                after = step(state)
                if after not in seen:
                    check(after)
                    seen.add(after)
                    queue.append((after, (*way, name)))
            except (Violation, AssertionError) as violation:
                raise Broken(str(violation), [*way, name]) from violation
    return len(seen), depth
