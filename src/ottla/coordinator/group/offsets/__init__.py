"""Committed offsets: their state, their records, a commit on its way, and their end."""
