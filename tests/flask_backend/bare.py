"""An app of somebody who has wheelcache and no Flask-Caching."""

import flask

app = flask.Flask("bare")
