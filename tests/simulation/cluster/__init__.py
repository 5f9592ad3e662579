"""Several nodes in one world: one metadata store, replicas, and clients that find leaders."""
