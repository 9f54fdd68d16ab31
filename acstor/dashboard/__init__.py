"""The Horizon plugin (a later step fills it)."""
