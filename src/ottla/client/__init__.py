"""Ottla's own small Kafka client, for the command line and Spark, on any Kafka cluster.

``connection``, ``cluster``, ``admin``, ``producer`` and ``fetcher`` run on asyncio, ``blocking``
does without. They share what does no input or output: ``exchange``, ``view``, ``offsets``,
``fetching``.
"""
