"""What a host measures of itself, and the message that tells it."""
