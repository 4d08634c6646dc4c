"""Serializers for the tests of the SERIALIZER option: right ones and wrong ones."""

import json


class Json:
    def dumps(self, value):
        return json.dumps(value).encode()

    def loads(self, data):
        return json.loads(data)


AN_OBJECT = Json()


class ReturnsText(Json):
    def dumps(self, value):
        return json.dumps(value)


class NeedsAnArgument(Json):
    def __init__(self, secret):
        self.secret = secret


class WithoutLoads:
    def dumps(self, value):
        return json.dumps(value).encode()
