"""Listener, connections and frames. Knows bytes and their order, not what they mean."""
