from tests.flask_backend.conftest import *  # noqa: F403
from tests.flask_backend.conftest import BEFORE_2_5

collect_ignore = ["test_our_cache.py"] if BEFORE_2_5 else []
