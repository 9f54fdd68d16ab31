"""Volume driver of Cinder, loaded by cinder-volume."""
