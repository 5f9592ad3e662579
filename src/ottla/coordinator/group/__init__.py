"""The group coordinator: committed offsets and classic groups, in ``__consumer_offsets``."""
