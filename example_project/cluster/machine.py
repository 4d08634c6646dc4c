"""``python -m cluster.machine 127.0.0.1:8000``: serve the site as on a machine of its own, which is CLUSTER_MACHINE.

The processes of one machine share stamps in its shared memory. Here, each machine has a directory instead, so that two
of them can run on one computer.
"""

import os
import sys
from pathlib import Path

import waitress

from tests import shared_stamps

shared_stamps.keep_in(Path(os.environ["CLUSTER_MACHINE"]))

# After that, so that no import can map stamps in the directory of the whole computer.
from cluster.worker import application  # noqa: E402

waitress.serve(application, listen=sys.argv[1], threads=8)
