"""Versions of disks: schedules, retention, fragmentation, delayed commit, restore plans."""
