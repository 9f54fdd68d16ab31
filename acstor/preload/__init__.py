"""Preloads: requests, their admission by a host, and their progress."""
