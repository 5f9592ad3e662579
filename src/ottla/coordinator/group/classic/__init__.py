"""Groups of the classic protocol: JoinGroup, SyncGroup, and the pure machine behind them."""
