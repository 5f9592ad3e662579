"""What shortens a log or writes it anew: retention, compaction, snapshots of producers."""
