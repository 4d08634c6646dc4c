"""Processes that fork: no connection crosses a fork, and parent and child share one file."""

import pytest

FORK = """
def in_child(work):
    # The child is not waited for: it answers by the cache.
    pid = os.fork()
    if pid == 0:
        signal.alarm(15)
        try:
            work()
        except BaseException as error:
            cache.set("error", repr(error))
        finally:
            os._exit(0)
    return pid

def wait_for(key):
    until = time.monotonic() + 10
    while (found := cache.get(key)) is None:
        assert time.monotonic() < until, [key, cache.get("error")]
        time.sleep(0.002)
    return found
"""


@pytest.fixture
def forking(worker):
    """Start a worker that can fork."""

    def start(**options):
        started = worker(**options)
        started(FORK)
        return started

    return start


def test_parent_and_child_see_each_others_writes_by_connections_of_their_own(forking):
    parent = forking()
    parent("cache.set(1, 'of parent')")
    parent(
        """
        def files():
            names = [f"/proc/self/fd/{file}" for file in os.listdir("/proc/self/fd")]
            return "|".join(os.readlink(name) for name in names if os.path.exists(name))
        """
    )
    parent("cache.set('gone', 1), cache.delete('gone')")
    parent("removals = lambda: sum(cache.stats().removals.values())")
    parent("in_child(lambda: cache.set('files', files()) and cache.set('seen', f'{cache.get(1)} {removals()}'))")
    # The figures of a child begin at zero: those of its parent count already.
    assert (parent("wait_for('seen')"), parent("removals()")) == ("of parent 0", 1)
    files = parent("cache.get('files')").split("|")
    assert not [name for name in files if name.endswith((".sqlite3", "-wal", "-shm"))]


def test_a_process_forks_while_its_threads_read_and_write(forking):
    parent = forking()
    parent(
        """
        ended = threading.Event()
        wrong = []
        cache.set("count", 0)
        def use(number):
            count = 0
            while not ended.is_set():
                count += 1
                cache.set(f"key {number}", count)
                if cache.get(f"key {number}") != count:
                    wrong.append((number, count))
        threads = [threading.Thread(target=use, args=[number]) for number in range(4)]
        for thread in threads:
            thread.start()
        """
    )
    pids = [parent("in_child(lambda: cache.add(f'done {os.getpid()} {cache.incr(\"count\")}', 1))") for _ in range(20)]
    parent("while cache.get('count') < 20: time.sleep(0.01)")
    parent("ended.set()")
    parent("[thread.join() for thread in threads]")
    assert len({*pids}) == 20
    assert parent("(wrong, events, cache.get('error'))") == ([], [], None)
