"""Membership of hosts, locks of leaders, and the ring that they publish."""
