"""Snapshot files that tests write, read and take apart, here and in other processes."""

import os
import textwrap
from contextlib import contextmanager

from tests import scripts
from wheelcache.errors import SnapshotRefused
from wheelcache.persistence.snapshot_file import CRC, END, LENGTH, MAC_BYTES, PREFIX, SnapshotWriter, open_snapshot

NAME = "a.snapshot"
SECRET = b"a secret"
RECORDS = [b"one", b"", b"three" * 3, b"\0" * 9, b"one"]
OLD, NEW = [b"old"] * 3, [b"new"] * 40
NOBODY = 65534

PRELUDE = """
import fcntl, os, signal, sys
from itertools import count
from pathlib import Path
from tests.persistence.snapshot_files import *
from wheelcache.persistence import snapshot_file
from wheelcache.persistence.snapshot_file import SnapshotWriter, remove_leftovers, set_aside

folder = Path(sys.argv[1])
path = folder / NAME
"""


def start(script, *args, command=()):
    return scripts.start(PRELUDE + textwrap.dedent(script), *args, command=command)


def run(script, *args, command=()):
    return scripts.run(PRELUDE + textwrap.dedent(script), *args, command=command).splitlines()


def become_nobody(folder):
    """Change the user. Call this after the imports, for which that user may lack the permission."""
    if os.geteuid() == 0:
        os.chown(folder, NOBODY, NOBODY)
        os.setuid(NOBODY)


def write(path, records=RECORDS, secret=None, kind="cache", **header):
    with SnapshotWriter(path, {"kind": kind, **header}, secret) as writer:
        for record in records:
            writer.write(record)
    return path


def read(path, secret=None, kind="cache"):
    """Return the good records, and the reason if others are missing."""
    records = []
    try:
        with open_snapshot(path, kind, secret) as snapshot:
            # The records before an exception.
            records.extend(snapshot)
    except SnapshotRefused as refused:
        return records, str(refused)
    return records, None


def parts(data, secret=None):
    """Return the header, the records and the end of a file, as bytes."""
    check = CRC.size if secret is None else MAC_BYTES
    first = PREFIX.size + PREFIX.unpack_from(data)[-1] + check
    found, at = [data[:first]], first
    while at < len(data):
        (length,) = LENGTH.unpack_from(data, at)
        size = LENGTH.size + check + (0 if length == END else length)
        found.append(data[at : at + size])
        at += size
    return found


@contextmanager
def umask(value):
    before = os.umask(value)
    try:
        yield
    finally:
        os.umask(before)
