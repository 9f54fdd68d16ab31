"""Volumes: writable disks, their snapshots and their owners, as records in the origin."""
