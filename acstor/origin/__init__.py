"""The origin: the central store that everything can be re-read from."""
