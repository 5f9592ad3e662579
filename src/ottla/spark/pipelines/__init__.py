"""Pipelines on Spark's own declarative pipelines: ``ottla pipeline``, and what it is made of.

    project    a directory with a spec: found, read, checked, made from a template
    engine     a local Spark with the Connect server that pipelines need
    recording  what the transformations define, told to Spark and noted as a graph
    running    a run: its events, its progress, its end
    graph      the graph as text and pictures

Spark plans and runs everything. ``engine``, ``recording`` and ``running`` import pyspark where they
are used, so the command line starts without it.
"""
