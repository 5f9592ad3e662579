"""How Spark finds ``format("ottla")`` by itself: it imports every ``pyspark_*`` module it can see.

Each Python session of Spark does that once, whether it reads topics or not: so this is light, and
never raises, since an error here would end queries that have nothing to do with us.
"""

try:
    from ottla.spark.planning.source import OttlaDataSource as DefaultSource
except ImportError as error:  # an incomplete installation: Spark goes on without this format
    import warnings

    warnings.warn(f"format 'ottla' is not available: {error}", stacklevel=1)
else:
    __all__ = ["DefaultSource"]
