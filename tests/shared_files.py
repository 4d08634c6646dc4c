"""Gives a test its own directory for the files that the processes of a machine share."""

from wheelcache.pages import shared_purges
from wheelcache.timers import locks


def keep_in(directory, set_attribute=setattr):
    """Set the directory for this process. Other processes of the test call this as well."""
    directory.chmod(0o700)
    for module in (shared_purges, locks):
        set_attribute(module, "runtime_directory", lambda: directory)
