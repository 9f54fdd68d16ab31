"""Power of members: which are on, who switches them, and what keeps a sleeping one from harm."""
