"""The client that blocks its thread: for Spark's workers and its planner."""
