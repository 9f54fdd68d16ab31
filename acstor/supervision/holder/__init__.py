"""The holder: supervises one process where there is no systemd and keeps its descriptors."""
