"""Nova and Cinder filters and weighers (a later step fills it)."""
