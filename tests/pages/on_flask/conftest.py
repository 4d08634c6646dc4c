from tests.flask_backend.conftest import *  # noqa: F403
