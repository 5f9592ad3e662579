"""The cluster's metadata: a small store with guards and watches, and the image that follows it."""
