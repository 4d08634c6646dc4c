"""What fails again and again is left alone, and tried now and then."""

from wheelcache.near_cache.circuit_breaker import FAILURES, FIRST_PAUSE, LONGEST_PAUSE, CircuitBreaker


def opened():
    breaker = CircuitBreaker()
    assert [breaker.failed(100.0) for _ in range(FAILURES)] == [False] * (FAILURES - 1) + [True]
    return breaker


def test_it_is_closed_at_first_and_stays_so_below_so_many_failures_in_a_row():
    breaker = CircuitBreaker()
    for _ in range(100):
        assert not any(breaker.failed(0.0) for _ in range(FAILURES - 1))
        assert breaker.allows(0.0)
        assert not breaker.succeeded()
    assert not breaker.is_open()


def test_it_says_once_that_it_opened_and_once_that_it_closed():
    breaker = opened()
    assert breaker.is_open()
    assert not breaker.failed(100.0)
    assert breaker.succeeded()
    assert not breaker.succeeded()
    assert breaker.allows(0.0)


def test_an_open_one_lets_nothing_through_until_its_pause_is_over_and_then_one():
    breaker = opened()
    assert not breaker.allows(100.0)
    assert not breaker.allows(100.0 + FIRST_PAUSE - 0.001)
    assert [breaker.allows(100.0 + FIRST_PAUSE) for _ in range(3)] == [True, False, False]


def test_a_try_that_never_says_how_it_ended_does_not_keep_it_open_for_ever():
    breaker = opened()
    assert breaker.allows(101.0)
    assert not breaker.allows(101.0 + FIRST_PAUSE - 0.001)
    assert breaker.allows(101.0 + FIRST_PAUSE)


def test_pauses_double_with_every_try_that_fails_up_to_the_longest():
    breaker = opened()
    now, pauses = 100.0, []
    for _ in range(6):
        pause = next(tenths / 10 for tenths in range(1000) if breaker.allows(now + tenths / 10))
        pauses.append(pause)
        now += pause
        breaker.failed(now)
    assert pauses == [0.5, 1.0, 2.0, 4.0, 5.0, 5.0]
    assert pauses[-1] == LONGEST_PAUSE


def test_after_a_success_pauses_start_anew():
    breaker = opened()
    for _ in range(5):
        breaker.failed(200.0)
    breaker.succeeded()
    for _ in range(FAILURES):
        breaker.failed(300.0)
    assert breaker.allows(300.0 + FIRST_PAUSE)


def test_thousands_of_failures_while_it_is_open_do_not_push_the_next_try_out_of_sight():
    breaker = opened()
    for _ in range(10_000):
        breaker.failed(100.0)
    assert breaker.allows(100.0 + LONGEST_PAUSE)
