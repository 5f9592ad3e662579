"""Looks into a node's files for the command line, and changes nothing."""
