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


def test_a_process_that_only_makes_the_cache_opens_nothing(worker, folder):
    assert worker()("(repr(cache.name), threading.active_count())") == ("'default'", 1)
    assert not folder.exists()


def test_parent_and_child_see_each_others_writes_by_connections_of_their_own(forking):
    parent = forking()
    parent("cache.set('of parent', 1)")
    parent(
        """
        def files():
            names = [f"/proc/self/fd/{file}" for file in os.listdir("/proc/self/fd")]
            return "|".join(os.readlink(name) for name in names if os.path.exists(name))
        """
    )
    parent("in_child(lambda: cache.set('files', files()) and cache.set('of child', cache.get('of parent') + 1))")
    assert parent("wait_for('of child')") == 2
    files = parent("cache.get('files')").split("|")
    assert not [name for name in files if name.endswith((".sqlite3", "-wal", "-shm"))]
    parent("cache.set('again', 1)")
    assert parent("cache.get('again')") == 1


def test_a_child_shares_the_file_with_later_processes_after_its_parent_has_ended(forking, worker):
    parent = forking()
    parent("cache.set('of parent', 1)")
    parent("in_child(lambda: (cache.set('begun', 1), wait_for('go on'), cache.set('of child', 2), wait_for('end')))")
    parent("wait_for('begun')")
    parent.end()
    # The last one that closes a file removes its log. The child still uses it.
    worker().end()
    later = forking()
    later("cache.set('go on', 1)")
    assert later("wait_for('of child')") == 2
    assert later("cache.get('of parent')") == 1
    later("cache.set('end', 1)")


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


OF_TESTS = """
from wheelcache.host_cache import place
from wheelcache.host_cache.hosted_cache import HostedCache

def find_place():
    name = place.test_process(is_testing=True, number=0)
    return place.Place(place.folder_of({location!r}, "", name))

of_tests = HostedCache(find_place, 1 << 20, name="tests")
of_tests.set("k", "of parent")
"""


def test_the_child_of_a_process_that_runs_tests_has_entries_of_its_own(forking, tmp_path):
    parent = forking()
    parent(OF_TESTS.format(location=str(tmp_path / "tests")))
    parent("in_child(lambda: (cache.set('found', repr(of_tests.get('k'))), of_tests.set('k', 'of child')))")
    assert parent("wait_for('found')") == "None"
    assert parent("of_tests.get('k')") == "of parent"
