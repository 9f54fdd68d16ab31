"""The Cinder volume driver (a later step fills it)."""
