"""The group coordinator: groups of all kinds, and committed offsets, in ``__consumer_offsets``."""
