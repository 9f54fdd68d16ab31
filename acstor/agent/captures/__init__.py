"""Captures of disks on their compute host: sources, the host's folder of captures, commits."""
