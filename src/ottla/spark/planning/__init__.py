"""The source's planner: what a query asks for becomes ranges of offsets for its tasks.

Runs in the driver's Python processes; imports only the standard library, pyspark and this project.
"""
