"""Real Debian guests: building their image, running them, watching their serial line."""
