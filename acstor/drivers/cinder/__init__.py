"""What cinder-volume loads: the volume driver."""
