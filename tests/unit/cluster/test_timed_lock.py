"""A lock counts as lost before the backend can have given it to another."""

import pytest

from acstor.cluster.timed_lock import TimedLock


class FreeLock:
    """As tooz's: taken by whoever asks first."""

    acquired = False

    def acquire(self, *, blocking: bool) -> bool:
        assert not blocking
        self.acquired = True
        return True

    def release(self) -> None:
        self.acquired = False


@pytest.mark.parametrize(("timeout", "lasts"), [(10.0, 9.0), (4.0, 3.0), (2.0, 1.5), (1.0, 0.75)])
def test_lock_lasts_less_than_a_backend_keeps_it(timeout: float, lasts: float) -> None:
    now = [100.0]
    lock = TimedLock(FreeLock(), "ring", timeout, clock=lambda: now[0])

    def state() -> tuple[bool, bool]:
        return lock.is_held, lock.is_overdue

    seen = [state()]
    assert lock.hold(since=99.0)
    for at in (99.0 + lasts - 0.01, 99.0 + lasts):
        now[0] = at
        seen.append(state())
    lock.release()
    seen.append(state())
    assert seen == [(False, False), (True, False), (False, True), (False, False)]
