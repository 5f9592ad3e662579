"""OffsetCommit: its ordinary and its direct way."""
