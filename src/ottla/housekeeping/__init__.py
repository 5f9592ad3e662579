"""What a node does beside its requests: old records go, logs stay small, safe and in place."""
