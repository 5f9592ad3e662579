"""Records to Arrow's columns and back, for Spark; no part of the broker knows this room."""
