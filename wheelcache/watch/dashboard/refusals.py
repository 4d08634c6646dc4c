"""The refusal of a request to the dashboard."""

from __future__ import annotations


class Refused(Exception):
    """The request is impossible, for the reason in the message.

    Attributes:
        status: the status of the response.
    """

    def __init__(self, reason: str, status: int = 409) -> None:
        super().__init__(reason)
        self.status = status
