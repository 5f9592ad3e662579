"""OffsetCommit: the ordinary way and the direct one."""
