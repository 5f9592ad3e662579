"""The parts of the power cut campaign, ``tests/campaigns/powercut.py``."""
