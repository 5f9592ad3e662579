"""What a log remembers of its producers: sequences, transactions and snapshots."""
