"""The two sites on the servers that tests ask for, which stay up for all tests of a module."""

import json
from contextlib import ExitStack

import pytest

from tests.servers.process import Fleet
from tests.servers.sites import command_of, environment


@pytest.fixture(scope="module")
def fleet(tmp_path_factory):
    """Start a server, or get the one that runs: ``fleet("django", "waitress", site_wide=..., option=...)``."""
    with ExitStack() as stack:
        servers = Fleet(stack, tmp_path_factory.mktemp("servers"))

        def start(framework, server, *, again="", site_wide=False, **options):
            key = (framework, server, again, site_wide, json.dumps(options))
            return servers(key, command_of(framework, server), **environment(site_wide, **options))

        start.logs = servers.logs
        yield start
