"""The acstor command line."""
