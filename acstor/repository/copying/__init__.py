"""Copies of a whole repository in another origin: backup, restore, and moves between origins."""
