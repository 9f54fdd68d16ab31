"""Version control of disks (a later step fills it)."""
