"""The client library: what ``ottla.Client`` and ``ottla.AsyncClient`` are made of.

Private, but for the names that ``ottla`` itself offers (docs/client.md lists them). One core on
asyncio; the blocking face runs the same core on a loop in a thread of its own.
"""
