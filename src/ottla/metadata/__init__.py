"""The cluster's metadata: a store of keys and values, and an image in memory that follows it."""
