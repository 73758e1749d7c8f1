"""What survives a death: the state store, the log of updates, snapshots, commits; and who restarts what."""
