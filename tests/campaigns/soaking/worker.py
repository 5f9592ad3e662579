"""What all clients of the soak share: a thread that does one thing again and again.

Knows nothing of what is done, nor of faults: whatever a cluster may refuse while hosts fail is
tried again, for a stated time.
"""

import threading
import time
from collections import Counter
from collections.abc import Callable
from typing import Any

from confluent_kafka import KafkaException

from tests.campaigns.nodes_transactions import QUIET

PATIENCE_SECONDS = 90.0
"""For one thing to be done, whatever fails meanwhile."""
AGAIN_SECONDS = 0.2
PROBLEMS_MAX = 20


def config(bootstrap: str, **more: object) -> dict[str, Any]:
    """Return librdkafka's configuration; ``more`` has _ for each dot of the names."""
    return {
        "bootstrap.servers": bootstrap,
        "reconnect.backoff.ms": 50,
        "reconnect.backoff.max.ms": 500,
        **QUIET,
        **{name.replace("_", "."): value for name, value in more.items()},
    }


def name_of(error: KafkaException) -> str:
    """Return the name of librdkafka's code."""
    return str(error.args[0].name())


class Worker(threading.Thread):
    """One client's thread; ``problems`` has the promises that were broken to it."""

    def __init__(self, bootstrap: str) -> None:
        super().__init__(daemon=True, name=type(self).__name__)
        self.bootstrap = bootstrap
        self.stopping = threading.Event()
        self.broke: BaseException | None = None
        """What ended the thread though nobody wanted it to."""
        self.problems: list[str] = []
        self.errors: Counter[str] = Counter()
        """What was refused, and tried again."""
        self.count = 0
        """How often it was done."""

    def run(self) -> None:
        """Work until told to stop."""
        try:
            while not self.stopping.is_set():
                self.once()
                self.count += 1
            self.close()
        except BaseException as error:
            self.broke = error
            raise

    def once(self) -> None:
        """Do it once, and rest."""
        raise NotImplementedError

    def close(self) -> None:
        """Let go of what is held; called by the thread when it stops."""

    def fail(self, what: str) -> None:
        """Note a broken promise."""
        if len(self.problems) < PROBLEMS_MAX:
            self.problems.append(what)

    def persist(self, what: str, attempt: Callable[[], bool]) -> bool:
        """Try until it returns True; tell whether it did before patience ended (a problem)."""
        deadline = time.monotonic() + PATIENCE_SECONDS
        while time.monotonic() < deadline:
            try:
                if attempt():
                    return True
            except KafkaException as error:
                self.errors[f"{type(self).__name__}: {name_of(error)}"] += 1
            time.sleep(AGAIN_SECONDS)
        self.fail(f"{what}: not within {PATIENCE_SECONDS:g} s")
        return False
