"""Drivers that switch the machines of members, behind one interface."""
