"""Cluster as administrators see it: hosts, ring, decision, pins, live state."""
