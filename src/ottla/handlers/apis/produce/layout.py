"""What stands where in a Produce request, and so in its answer."""

from ottla.ids import TopicId

Layout = list[tuple[str, TopicId, list[int]]]
"""The request's topics (name, id) and their partitions, in its order; the answer's order too."""
