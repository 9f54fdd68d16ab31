"""Database of versions: index, schedules, tasks, leases, defaults (RFD 37)."""
