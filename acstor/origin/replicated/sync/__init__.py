"""Copies between the members of an origin: what is owed, at which rate, and by whom."""
