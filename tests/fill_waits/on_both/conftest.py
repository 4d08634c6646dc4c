from tests.backends.conftest import *  # noqa: F403
