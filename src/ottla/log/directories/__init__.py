"""All logs of a node in their directories: open, make, move, and go offline."""
