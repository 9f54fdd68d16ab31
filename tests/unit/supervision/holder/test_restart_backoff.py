from acstor.supervision.holder.restart_backoff import AT_ONCE_MAX, DELAY_MAX, RestartBackoff


def test_process_that_served_is_replaced_at_once_however_often() -> None:
    backoff = RestartBackoff()
    assert [backoff.delay_after(1.5, was_ready=True) for _ in range(20)] == [0.0] * 20


def test_crash_loop_slows_down_to_the_bound() -> None:
    backoff = RestartBackoff()
    delays = [backoff.delay_after(0.01, was_ready=False) for _ in range(2000)]
    assert delays[:4] == [0.0, 0.1, 0.2, 0.4]
    assert delays == sorted(delays)
    assert delays[-1] == DELAY_MAX


def test_healthy_life_ends_the_slowness() -> None:
    backoff = RestartBackoff()
    for _ in range(5):
        backoff.delay_after(0.0, was_ready=False)
    backoff.delay_after(60.0, was_ready=False)
    assert backoff.delay_after(0.0, was_ready=False) == 0.0


def test_process_that_served_shortly_slows_down_only_after_many() -> None:
    backoff = RestartBackoff()
    delays = [backoff.delay_after(0.3, was_ready=True) for _ in range(AT_ONCE_MAX + 100)]
    assert delays[:AT_ONCE_MAX] == [0.0] * AT_ONCE_MAX
    assert delays[AT_ONCE_MAX] > 0.0
    assert delays[-1] == DELAY_MAX
