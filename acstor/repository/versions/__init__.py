"""Versions of disks in the origin: records, captures, deltas (RFD 28)."""
