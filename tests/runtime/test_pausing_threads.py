"""Threads of timers and of Redis tracking end before a fork if they are idle, and start again when they are needed."""

from tests.engine.test_fork_threads import run, run_noting

TIMERS = """
executed = []
begun, go_on = threading.Event(), threading.Event()

def execute(key, value):
    executed.append(key)
    if key == "slow":
        begun.set()
        assert go_on.wait(20)

timers = Timers(0.01, 8, execute)

def use(key):
    timers.set_timer(key, 1, 0.02)
    until(lambda: key in executed)

def of_timers():
    return [thread for thread in threads() if thread.startswith("wheelcache-timers")]
"""


def test_idle_threads_of_timers_end_before_a_fork_and_start_again_when_a_timer_is_due():
    assert run_noting(f"""{TIMERS}
use("before")
print(len(of_timers()))

def child():
    assert of_timers() == []
    use("child's")
    timers.stop()

# A thread is idle a moment after the call has returned.
until(lambda: seen_by_forks.clear() or in_child(child) == 0 and seen_by_forks == [1])
print(len(of_timers()))
use("after")
print("child's" in executed)
""") == ["1", "0", "False"]


def test_a_fork_while_a_timer_executes_leaves_it_to_the_parent():
    assert run(f"""{TIMERS}
warnings.simplefilter("ignore", DeprecationWarning)
use("before")
timers.set_timer("slow", 1, 0.02)
assert begun.wait(20)
for number in range(8):
    timers.set_timer(("waits", number), 1, 0.02)

def child():
    executed.clear()
    use("child's")
    assert executed == ["child's"]

print(in_child(child))
go_on.set()
until(lambda: len(executed) == 10)
use("after")
print(len(executed))
""") == ["0", "11"]


def test_timers_that_are_due_at_the_exit_execute():
    assert (
        run(f"""{TIMERS}
def last(key, value):
    time.sleep(0.2)
    print("executed", flush=True)

last_ones = Timers(0.01, 8, last)
for number in range(6):
    last_ones.set_timer(number, 1, 0.02)
until(lambda: len(last_ones) == 0)
""")
        == ["executed"] * 6
    )
