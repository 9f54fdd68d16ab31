"""Disks that captures read: one interface, whatever they lie in."""
