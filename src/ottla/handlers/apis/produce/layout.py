"""The order of topics and partitions in a Produce request, which its answer repeats."""

from ottla.ids import TopicId

Layout = list[tuple[str, TopicId, list[int]]]
"""The request's topics, each with name, id and partitions, in order."""
