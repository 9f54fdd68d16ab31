"""Logs of volumes in several members: an epoch is written in one, the others get copies."""
