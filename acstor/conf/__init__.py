"""Configuration options, one file per group."""
