"""Time that passes only where somebody waits."""


class VirtualTime:
    """A clock and what waits by it.

    :param now: seconds, at the start.
    """

    def __init__(self, now: float = 0.0) -> None:
        self.now = now
        self.waits: list[float] = []

    def __call__(self) -> float:
        """Return the time, seconds."""
        return self.now

    def sleep(self, seconds: float) -> None:
        """Let time pass."""
        self.waits.append(seconds)
        self.now += seconds
