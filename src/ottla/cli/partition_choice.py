"""Partitions as the command line names them: ``TOPIC`` or ``TOPIC:0,3``."""

from ottla.cli.failure import Exit, Failure
from ottla.cli.topic_choice import existing_topic
from ottla.client.asyncio.cluster import Cluster
from ottla.ids import TopicPartition


async def chosen_partitions(cluster: Cluster, text: str) -> list[TopicPartition]:
    """Return the partitions that ``text`` names. Raises Failure."""
    name, colon, numbers = text.partition(":")
    view = await existing_topic(cluster, name)
    if not colon:
        return [TopicPartition(name, index) for index in view.partitions]
    chosen: list[TopicPartition] = []
    for number in numbers.split(","):
        if not (number.isascii() and number.isdigit()):
            raise Failure(f"{text!r} is not TOPIC or TOPIC:0,1", code=Exit.USAGE)
        if int(number) not in view.partitions:
            raise Failure(f"{name} has no partition {int(number)}", code=Exit.NOT_FOUND)
        chosen.append(TopicPartition(name, int(number)))
    return chosen
