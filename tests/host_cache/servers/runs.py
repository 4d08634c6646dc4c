"""The computations of a site with several workers, counted in a file."""

import os
import time
from pathlib import Path

RUNS = Path(os.environ["HOST_FOLDER"], "runs")


def note_run(number):
    """Compute the value of ``number``, which takes long enough for other requests to miss it meanwhile."""
    with RUNS.open("ab", buffering=0) as file:
        file.write(b"x")
    time.sleep(0.05)
    return f"number {number}"
