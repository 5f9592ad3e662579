"""Groups of the classic protocol: a pure machine behind JoinGroup and SyncGroup, and its shell."""
