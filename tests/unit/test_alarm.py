"""Waiting for a look: its interval, whoever asks sooner, and the end."""

import threading
import time

from acstor.alarm import Alarm


class Waiter:
    """A thread that waits once."""

    def __init__(self, alarm: Alarm, seconds: float) -> None:
        self.took: float | None = None
        self._alarm, self._seconds = alarm, seconds
        self.thread = threading.Thread(target=self._wait, daemon=True)
        self.thread.start()

    def _wait(self) -> None:
        started = time.monotonic()
        self._alarm.wait(self._seconds)
        self.took = time.monotonic() - started

    def join(self) -> float:
        self.thread.join(30)
        assert self.took is not None
        return self.took


def test_interval_is_waited_for() -> None:
    assert Waiter(Alarm(), 0.05).join() >= 0.05


def test_who_asks_is_not_kept_waiting() -> None:
    alarm = Alarm()
    waiter = Waiter(alarm, 60)
    alarm.ask()
    assert waiter.join() < 30
    alarm.wait(60)  # what was asked for stays due until a look begins
    alarm.begin()
    assert Waiter(alarm, 0.02).join() >= 0.02


def test_the_soonest_counts() -> None:
    class Clock:
        now = 100.0

        def __call__(self) -> float:
            return self.now

    clock = Clock()
    alarm = Alarm(clock)
    alarm.ask(within=1e9)
    waiter = Waiter(alarm, 1e9)
    alarm.ask()
    assert waiter.join() < 30


def test_asking_for_a_random_moment_spreads() -> None:
    alarms = [Alarm() for _ in range(20)]
    for alarm in alarms:
        alarm.ask(within=0.2)
    started = time.monotonic()
    waiters = [Waiter(alarm, 60) for alarm in alarms]
    took = sorted(waiter.join() for waiter in waiters)
    assert took[-1] - took[0] > 0.02
    assert time.monotonic() - started < 30


def test_end_lets_nobody_wait() -> None:
    alarm = Alarm()
    waiter = Waiter(alarm, 60)
    alarm.end()
    waiter.join()
    alarm.begin()
    alarm.wait(60)


def test_asked_for_by_a_handler_of_the_waiting_thread_itself() -> None:
    """Signals come while the main thread is anywhere in here."""
    alarm = Alarm()
    with alarm._condition:
        alarm.ask()
    alarm.wait(60)
