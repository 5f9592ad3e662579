"""Produce: its ordinary and its direct way, transactional appends, and very long requests."""
