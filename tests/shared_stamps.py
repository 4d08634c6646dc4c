"""Where the processes of a machine keep what they share: for a test, in a directory of its own."""

from wheelcache.coherence import shared_stamps


def keep_in(directory, set_attribute=setattr):
    """For this process. Others that the test starts call this as well."""
    directory.chmod(0o700)
    set_attribute(shared_stamps, "runtime_directory", lambda: directory)
