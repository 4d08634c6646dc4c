"""Where a page reads what it depends on, as ``wheelcache why`` shows it."""

from tests.scripts import ROOT
from wheelcache.pages import NOTES_KEY
from wheelcache.pages.reads import Reads


def line_of(path, text):
    """Return the number of the first line of a file that contains ``text``."""
    lines = (ROOT / path).read_text().splitlines()
    return next(number for number, line in enumerate(lines, 1) if text in line)


def traced(site, wrapped, *request):
    """Make a request whose reads are recorded. Return them. ``wrapped`` is the application behind its cache."""
    traces = Reads()
    application = wrapped._app

    def with_traces(environ, *args):
        environ[NOTES_KEY].traces = traces
        return application(environ, *args)

    wrapped._app = with_traces
    assert site.get(*request).status == 200
    wrapped._app = application
    return traces
