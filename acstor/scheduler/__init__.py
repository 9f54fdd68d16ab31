"""What the schedulers of Nova and Cinder load, and what they know of the hosts."""
