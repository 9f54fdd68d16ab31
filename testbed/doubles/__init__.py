"""In-memory doubles: the interface of the real thing, nothing of its speed."""
