"""Small JSON documents that processes share as files: read whole, replaced atomically."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from wheelcache.runtime.private_files import not_for_children

if sys.platform != "win32":
    import fcntl


def load_document(path: Path) -> dict[str, Any]:
    """The document in a file; an empty one if the file is missing or cannot be read as one."""
    try:
        document = json.loads(path.read_bytes())
    except (OSError, ValueError, RecursionError):
        return {}
    return document if isinstance(document, dict) else {}


def replace_document(target: Path, document: Mapping[str, Any]) -> None:
    """Put ``document`` in the place of ``target``.

    Raises:
        OSError: what was there before stays.
    """
    os.close(replace_and_lock(target, document))


def replace_and_lock(target: Path, document: Mapping[str, Any]) -> int:
    """As ``replace_document``. The descriptor that is returned holds a lock on the file until it is closed."""
    new = target.with_name(f".{target.name}.{os.getpid()}")
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC
    file = os.open(new, flags, 0o600)
    not_for_children.add(file)
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        with open(file, "wb", closefd=False) as stream:
            stream.write(json.dumps(document, separators=(",", ":")).encode())
        os.replace(new, target)
    except BaseException:
        not_for_children.discard(file)
        os.close(file)
        new.unlink(missing_ok=True)
        raise
    not_for_children.discard(file)
    return file
