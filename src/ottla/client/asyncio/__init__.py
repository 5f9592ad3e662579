"""The client on an asyncio loop: cluster, producer, fetcher, groups, administration."""
