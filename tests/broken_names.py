"""Names that no topic can have."""

BROKEN_NAMES = ["../x", "a b", "", "x" * 250, ".", ".."]
