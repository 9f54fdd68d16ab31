"""A tooz lock of one process: free, or this one's."""


class MemoryLock:
    """A lock that nobody else wants."""

    def __init__(self) -> None:
        self.acquired = False

    def acquire(self, *, blocking: bool = True) -> bool:
        """Take it."""
        self.acquired = True
        return True

    def release(self) -> bool:
        """Give it back."""
        was_acquired, self.acquired = self.acquired, False
        return was_acquired
