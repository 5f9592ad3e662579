"""The topics that a command names: one or several, or those whose whole names fit a pattern."""

import re
from collections.abc import Sequence

from ottla.cli.failure import Exit, Failure
from ottla.cli.near import did_you_mean
from ottla.client.asyncio.admin import Admin
from ottla.client.asyncio.cluster import Cluster
from ottla.client.wire.view import TopicView
from ottla.errors import ErrorCode, KafkaError


async def chosen_topics(
    cluster: Cluster, names: Sequence[str], pattern: str | None
) -> list[TopicView]:
    """Return the topics of ``names``, or those that ``pattern`` fits, sorted. Raises Failure.

    Internal topics fit no pattern. A topic that is named twice is there once.
    """
    if pattern is None:
        return [await existing_topic(cluster, each) for each in dict.fromkeys(names)]
    try:
        compiled = re.compile(pattern)
    except re.error as error:
        raise Failure(f"--regex {pattern!r}: {error}", code=Exit.USAGE) from error
    there = [each for each in await Admin(cluster).list_topics() if not each.is_internal]
    found = [each for each in there if compiled.fullmatch(each.name)]
    if not found:
        fix = "a pattern fits a whole name: 'orders.*'; ottla topic list"
        raise Failure(f"no topic fits {pattern!r}", fix=fix, code=Exit.NOT_FOUND)
    return found  # They were told with the list: not a question for each.


async def existing_topic(cluster: Cluster, name: str) -> TopicView:
    """Return a topic. Raises Failure, which names topics of similar names."""
    admin = Admin(cluster)
    try:
        return await admin.describe_topic(name)
    except KafkaError as error:
        if error.code is not ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            raise
        known = [each.name for each in await admin.list_topics() if not each.is_internal]
        hint = did_you_mean(name, known, 3) or f"ottla topic create {name}"
        raise Failure(f"there is no topic {name}", fix=hint, code=Exit.NOT_FOUND) from error
