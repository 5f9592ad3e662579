"""The parts of the differential campaign, ``tests/campaigns/spark_programs.py``."""
