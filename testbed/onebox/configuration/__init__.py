"""The configuration of every service of a one-box, as options by group."""
