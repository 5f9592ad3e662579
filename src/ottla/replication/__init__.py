"""Partitions and what waits for them: leadership, high watermark, appends, fetches, purgatory."""
