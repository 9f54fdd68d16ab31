"""Power of members."""
