"""Sockets: frames, connections and listeners. Knows bytes and their order, not what they mean."""
