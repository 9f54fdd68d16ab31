"""Telemetry of a host: its measurements of itself, and the message that carries them."""
