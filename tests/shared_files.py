"""Gives a test its own directory for the files that the processes of a machine share."""

from wheelcache.engine.guests import module_of

USERS = (("pages", "shared_purges"), ("timers", "locks"))


def keep_in(directory, set_attribute=setattr):
    """Set the directory for this process. Other processes of the test call this as well."""
    directory.chmod(0o700)
    for guest, name in USERS:
        if module := module_of(guest, name):
            set_attribute(module, "runtime_directory", lambda: directory)
