"""Servers that need more than a command line: ``python -m tests.servers.special <which> <port>...``."""

import os
import sys
import threading
from wsgiref.simple_server import WSGIServer, make_server


class PatientServer(WSGIServer):
    """Has room for all requests of a test in its queue: of 5, as is usual, the rest would be sent again and again."""

    request_queue_size = 256


def serve_gevent(port):
    """Everything patched, before Django and wheelcache are imported."""
    from gevent import monkey

    monkey.patch_all()

    from gevent import pywsgi

    from tests.servers.django_site import application

    pywsgi.WSGIServer(("127.0.0.1", int(port)), application, log=None).serve_forever()


def serve_gevent_late(port):
    """Patched when the cache is in use and its threads run."""
    from tests.servers.used_site import application  # noqa: I001

    from gevent import monkey

    monkey.patch_all()

    from gevent import pywsgi

    pywsgi.WSGIServer(("127.0.0.1", int(port)), application, log=None).serve_forever()


def serve_eventlet_late(port):
    """Patched after Django and wheelcache were imported, before the first use: eventlet breaks threads that run."""
    from tests.servers.django_site import application  # noqa: I001

    import eventlet

    eventlet.monkey_patch()

    from eventlet import wsgi

    wsgi.server(eventlet.listen(("127.0.0.1", int(port)), backlog=256), application, log_output=False)


def serve_fork(*ports):
    """One child a port, forked after the cache was used and its wheel thread runs."""
    from django.core.cache import cache

    from tests.servers.django_site import application
    from wheelcache.runtime.wheel_thread import wheel_thread

    cache.set("inherited", ["from the parent"], None)
    assert wheel_thread.is_alive()
    for port in ports:
        if os.fork() == 0:
            make_server("127.0.0.1", int(port), application, server_class=PatientServer).serve_forever()
    for _ in ports:
        os.wait()


def serve_refused(port):
    """No thread can be started: each would need a stack as large as all there is."""
    threading.stack_size(1 << 46)

    from tests.servers.django_site import application

    make_server("127.0.0.1", int(port), application, server_class=PatientServer).serve_forever()


if __name__ == "__main__":
    globals()[f"serve_{sys.argv[1]}"](*sys.argv[2:])
