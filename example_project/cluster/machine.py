"""``python -m cluster.machine 127.0.0.1:8000``: serve the site as on a machine of its own."""

import sys

import waitress

from cluster.worker import application

waitress.serve(application, listen=sys.argv[1], threads=8)
