"""The options of a node that concern quotas: how long their windows are, how many there may be.

The quotas themselves are set over the wire (AlterClientQuotas, ``ottla quota``).
Source: Kafka's broker configuration reference.
"""

from ottla.config.bounds import POSITIVE
from ottla.config.option import INT, Option

# fmt: off - one option is one paragraph
QUOTA_WINDOW_NUM = Option(
    "quota.window.num",
    INT,
    11,
    "Over how many windows the rates of client quotas are measured, the current one included.",
    validator=POSITIVE,
)
QUOTA_WINDOW_SIZE_SECONDS = Option(
    "quota.window.size.seconds",
    INT,
    1,
    "How long each window of client quotas is.",
    validator=POSITIVE,
    unit="s",
)
CONTROLLER_QUOTA_WINDOW_NUM = Option(
    "controller.quota.window.num",
    INT,
    11,
    "Over how many windows a client may save up what controller_mutation_rate allows.",
    validator=POSITIVE,
)
CONTROLLER_QUOTA_WINDOW_SIZE_SECONDS = Option(
    "controller.quota.window.size.seconds",
    INT,
    1,
    "How long each of these windows is.",
    validator=POSITIVE,
    unit="s",
)
CLIENT_QUOTAS_MAX = Option(
    "ottla.client.quotas.max",
    INT,
    10_000,
    "How many users, client ids, pairs of both and addresses may have quotas; creating more is"
    " refused with POLICY_VIOLATION.",
    validator=POSITIVE,
)
# fmt: on
OPTIONS = (
    QUOTA_WINDOW_NUM,
    QUOTA_WINDOW_SIZE_SECONDS,
    CONTROLLER_QUOTA_WINDOW_NUM,
    CONTROLLER_QUOTA_WINDOW_SIZE_SECONDS,
    CLIENT_QUOTAS_MAX,
)
