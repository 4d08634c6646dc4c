"""Of the processes that miss a key, one computes its value: sites that wait for each other, and holders that end."""

import json
import os
import select

import pytest

from tests.scripts import start
from tests.waiting import PATIENCE

LONG = 100.0
"""Seconds of a wait whose end no test sees."""

SITE = """
import json, os, sys, threading
import django
from django.conf import settings
from django.core.signals import request_finished

location, options = json.loads(sys.argv[1])
settings.configure(
    CACHES={
        "default": {
            "BACKEND": "wheelcache.django_backend.HostCache",
            "LOCATION": location,
            "OPTIONS": {"FIGURES_DIR": None, "LOG_INTERVAL": None, **options},
        }
    }
)
django.setup()
from django.core.cache import cache
from tests.waiting import PATIENCE, start, until, until_waiting
from wheelcache.loading import loads

answers = {}

def begin(name, work):
    # In a thread of its own, which goes on.
    def run():
        answers[name] = work()
        goes_on.wait()
    threading.Thread(target=run, daemon=True).start()

def answer(name):
    until(lambda: name in answers)
    return answers.pop(name)

def end_request():
    request_finished.send(None)

goes_on = threading.Event()
names = globals()
for line in sys.stdin:
    code = json.loads(line)
    try:
        result = eval(code, names)
    except SyntaxError:
        result = exec(code, names)
    print(json.dumps(result), flush=True)
"""


class Site:
    """A process of a Django site: ``site("cache.get('key')")`` runs there, and returns its result."""

    def __init__(self, location, options):
        # With the name of a worker of the tests, each process would have entries of its own.
        env = {name: value for name, value in os.environ.items() if name != "PYTEST_XDIST_WORKER"}
        self.process = start(SITE, json.dumps([str(location), options]), stderr=None, env=env)

    def __call__(self, code):
        self.process.stdin.write(f"{json.dumps(code)}\n")
        self.process.stdin.flush()
        assert select.select([self.process.stdout], [], [], 2 * PATIENCE)[0], f"no answer to {code}"
        return json.loads(self.process.stdout.readline())

    def begins(self, code, name="it"):
        """Run code in a thread until it waits."""
        self(f"begin({name!r}, lambda: {code})")
        self("until_waiting()")

    def kill(self):
        self.process.kill()
        self.process.wait(PATIENCE)


@pytest.fixture
def make_site(tmp_path):
    made = []

    def make(**options):
        made.append(Site(tmp_path / "host", options))
        return made[-1]

    yield make
    for each in made:
        each.kill()
        each.process.stdin.close()
        each.process.stdout.close()


@pytest.fixture
def sites(make_site):
    """Two processes whose callers of ``get`` wait for each other."""
    return make_site(FILL_WAIT=LONG), make_site(FILL_WAIT=LONG)


def test_a_get_waits_for_the_process_that_missed_the_key_and_returns_its_value(sites):
    holder, waiter = sites
    assert holder("cache.get('key')") is None
    waiter.begins("cache.get('key')")
    holder("cache.set('key', [1, 'value'])")
    assert waiter("answer('it')") == [1, "value"]


def test_a_get_goes_on_when_the_process_that_it_waits_for_is_killed(sites):
    holder, waiter = sites
    assert holder("cache.get('key')") is None
    waiter.begins("cache.get('key')")
    holder.kill()
    assert waiter("answer('it')") is None


@pytest.mark.parametrize("end", ["end_request()", "cache.delete('key')"])
def test_a_get_goes_on_when_the_request_that_it_waits_for_will_not_set_the_key(sites, end):
    holder, waiter = sites
    assert holder("cache.get('key')") is None
    waiter.begins("cache.get('key')")
    holder(end)
    assert waiter("answer('it')") is None
    # It has the claim now.
    holder.begins("cache.get('key')")
    waiter("cache.set('key', 1)")
    assert holder("answer('it')") == 1


def test_a_get_waits_no_longer_than_its_time(make_site):
    holder, waiter = make_site(FILL_WAIT=LONG), make_site(FILL_WAIT=0.05)
    assert holder("cache.get('key')") is None
    assert waiter("cache.get('key')") is None


def test_a_caller_that_holds_the_fill_of_another_key_does_not_wait(sites):
    for site, key in zip(sites, ["one", "other"], strict=True):
        assert site(f"cache.get({key!r})") is None
    for site, key in zip(sites, ["other", "one"], strict=True):
        assert site(f"cache.get({key!r})") is None


def test_a_get_goes_on_when_its_own_process_sets_the_key_and_leaves_no_claim(sites):
    holder, waiter = sites
    assert holder("cache.get('key')") is None
    waiter.begins("cache.get('key')")
    waiter("cache.set('key', 'set meanwhile')")
    assert waiter("answer('it')") == "set meanwhile"
    holder("end_request()")
    for site in sites:
        assert site("cache.delete('key')")
        assert site("cache.get('key')") is None
        site("end_request()")
        site("cache.set('key', 1)")
