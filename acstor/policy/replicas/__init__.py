"""Policies which members of an origin are on, behind acstor/origin/replicated/power/deciding.py."""
