"""Ottla's own small Kafka client, on any Kafka cluster: for the command line and Spark.

``wire`` is what a client says and understands, without input or output. ``asyncio`` and
``blocking`` speak it, each in its own way to wait; they know nothing of each other.
"""
