from tests.servers.conftest import *  # noqa: F403
