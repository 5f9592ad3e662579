"""What worlds of several nodes are about when they have a theme: tails that part from each other.

A tail parts when a leader goes on alone, or loses what others have already fetched. In worlds of
all faults that comes seldom: it needs load with acks=1, a leader cut off from followers and store
at once, syncs that take longer than a fetch, and changes of leaders soon after each other.
"""

from tests.simulation.mix import Theme

LOAD = {"plain": (3, 5), "idempotent": (0, 2), "transactional": (0, 1), "reader": (1, 2)}
FEW_WRITERS = {"plain": (1, 3), "idempotent": (1, 2), "transactional": (0, 2), "reader": (1, 2)}
COMPACTED = {
    "cleanup.policy": "compact",
    "internal.segment.bytes": "4000",
    "min.cleanable.dirty.ratio": "0.01",
}
"""Options of the one topic that is compacted in some worlds."""
BUSY = {"pause_seconds": 0.2, "acks": (1, 1, -1)}
SMALL = {"internal.segment.bytes": ["2000", "4000"]}

THEMES = (
    Theme(
        "leaders go on alone",
        ("isolate", "isolate-then-power", "isolate-in-turn"),
        LOAD,
        BUSY,
        {"replica.lag.time.max.ms": ["2000", "10000"]},
        SMALL,
    ),
    Theme(
        "power cuts take what is not synced",
        ("power-unsynced", "power-all-unsynced", "power-all", "isolate-then-power"),
        LOAD,
        {**BUSY, "job_seconds": 0.02},
        {"replica.fetch.wait.max.ms": ["100"]},
        SMALL,
    ),
    Theme(
        "leaders change in short order",
        ("depose", "stop-in-turn", "restart-unheard", "isolate"),
        LOAD,
        BUSY,
        {"replica.lag.time.max.ms": ["2000"]},
        SMALL,
    ),
    Theme(
        "a process is back before anybody has heard",
        ("restart-unheard", "power-unsynced"),
        LOAD,
        {**BUSY, "job_seconds": 0.02},
        {"replica.fetch.wait.max.ms": ["100"]},
        {},
    ),
    Theme(
        "the ISR shrinks and grows",
        ("cut-follower", "shrink-in-turn", "isolate", "slow-disk", "ambiguous"),
        LOAD,
        BUSY,
        {"replica.lag.time.max.ms": ["1000", "2000"]},
        SMALL,
    ),
    Theme(
        "a node is away for long",
        ("absence",),
        LOAD,
        {**BUSY, "faults_overlap": False},
        {"replica.lag.time.max.ms": ["2000", "10000"]},
        SMALL,
    ),
    Theme(
        "replicas are moved and leaders are chosen",
        ("stop", "kill", "isolate", "cut-store", "ambiguous", "stop-in-turn"),
        {**FEW_WRITERS, "administrator": (1, 1)},
        {},
        {"replica.lag.time.max.ms": ["2000", "10000"]},
        SMALL,
    ),
    Theme(
        "logs begin later",
        ("isolate", "power-unsynced", "kill", "cut-follower", "stop-in-turn", "clock"),
        {**FEW_WRITERS, "deleter": (1, 2)},
        BUSY,
        {"replica.lag.time.max.ms": ["2000", "10000"]},
        {**SMALL, "retention.bytes": ["-1", "8000"]},
    ),
    Theme(
        "logs are compacted",
        ("isolate", "power-unsynced", "kill", "kill-at-call", "stop-in-turn", "shrink-in-turn"),
        {**FEW_WRITERS, "deleter": (0, 1), "administrator": (0, 1)},
        {**BUSY, "compacted_options": COMPACTED},
        {
            "log.cleaner.backoff.ms": ["300"],
            "log.cleaner.io.max.bytes.per.second": ["10000000"],
            "replica.lag.time.max.ms": ["2000", "10000"],
        },
        {},
    ),
    Theme(
        "coordinators move",
        ("isolate", "kill", "pause", "stop-in-turn", "cut-store", "cut-clients", "clock"),
        {
            "plain": (0, 1),
            "member": (0, 4),
            "classic": (0, 4),
            "committer": (0, 2),
            "transactional": (0, 2),
        },
        {"pause_seconds": 0.5},
        {"replica.lag.time.max.ms": ["2000", "10000"]},
        {},
    ),
    Theme(
        "transactions whose coordinators move",
        (
            "isolate",
            "kill",
            "pause",
            "stop-in-turn",
            "cut",
            "cut-one-way",
            "cut-store",
            "cut-clients",
            "late-watch",
            "ambiguous",
            "depose",
            "restart-unheard",
        ),
        {"transformer": (2, 5), "transactional": (0, 1), "idempotent": (0, 1), "reader": (1, 2)},
        {"pause_seconds": 0.3},
        {
            "replica.lag.time.max.ms": ["2000", "10000"],
            "offsets.topic.num.partitions": ["1", "3"],
            "transaction.state.log.num.partitions": ["1", "3"],
        },
        {},
    ),
    Theme(
        "topics are made amid faults",
        ("power-amid-making", "kill-amid-making", "cut-store", "slow-disk", "ambiguous"),
        {**FEW_WRITERS, "maker": (1, 2)},
        {},
        {},
        {},
    ),
)

NEARBY = {**FEW_WRITERS, "near": (1, 2), "mover": (0, 2), "tuner": (0, 1)}
LATER_THEMES = (
    Theme(
        "replicas move within nodes, and followers are read",
        ("depose", "power-unsynced", "stop-in-turn", "isolate", "slow-disk", "restart-unheard"),
        {**NEARBY, "deleter": (0, 1), "administrator": (0, 1)},
        {**BUSY, "compacted_options": COMPACTED},
        {
            "replica.lag.time.max.ms": ["2000", "10000"],
            "log.cleaner.backoff.ms": ["300", "5000"],
        },
        SMALL,
    ),
    Theme(
        "replicas move within nodes, and disks fail",
        ("kill-at-call", "power-at-call", "sync-error", "write-error", "slow-disk", "cut-follower"),
        {**NEARBY, "deleter": (0, 1), "administrator": (0, 1)},
        {"compacted_options": COMPACTED},
        {"replica.lag.time.max.ms": ["2000", "10000"]},
        SMALL,
    ),
    Theme(
        "names of topics come back",
        ("kill", "power", "kill-at-call", "slow-disk", "cut-store", "pause", "isolate", "depose"),
        {"again": (2, 4), "plain": (0, 1), "mover": (0, 1)},
        {"pause_seconds": 0.2},
        {"replica.lag.time.max.ms": ["2000", "10000"]},
        SMALL,
    ),
)
"""Drawn by a stream of their own: other worlds stay as they were."""

LATEST_THEMES = (
    Theme(
        "segments are swapped slowly while leaders change",
        ("slow-swaps",),
        {**LOAD, "mover": (0, 1), "near": (0, 1)},
        {**BUSY, "compacted_options": COMPACTED, "faults_overlap": True},
        {
            "log.cleaner.backoff.ms": ["300"],
            "log.cleaner.io.max.bytes.per.second": ["10000000"],
            "replica.lag.time.max.ms": ["2000", "10000"],
        },
        SMALL,
    ),
)
"""Drawn by another stream, for the same reason."""

NEWEST_THEMES = (
    Theme(
        "old copies of disks are put back",
        (*3 * ("old-copy",), "kill", "power", "stop-in-turn", "isolate", "absence"),
        {**LOAD, "deleter": (0, 1)},
        {"faults_overlap": True, "pause_seconds": 0.3},
        {"replica.lag.time.max.ms": ["2000", "10000"]},
        SMALL,
    ),
    Theme(
        "disks are full while leaders change",
        ("full-disk", "full-disk", "full-disks", "kill", "stop", "isolate", "cut-store", "depose"),
        {**FEW_WRITERS, "deleter": (0, 1), "administrator": (0, 1), "committer": (0, 1)},
        {},
        {"replica.lag.time.max.ms": ["2000", "10000"]},
        SMALL,
    ),
)
"""Drawn by one more stream."""
