"""Finds, in the bytecode of code that accesses an attribute, whether this can only be a question.

``hasattr(request, "META")`` and ``if request.COOKIES`` get the value, and drop it without reading its items. The value
itself cannot show this, since code in C that has read them drops it in the same way.
"""

from __future__ import annotations

import dis
from functools import lru_cache
from types import CodeType, FrameType
from typing import Final

TESTS: Final = ("TO_BOOL", "UNARY_NOT", "POP_JUMP")
"""The beginnings of the names of instructions that use up a value to find out whether it is true."""
CALLS: Final = ("CALL", "PRECALL")
LOADS: Final = ("LOAD_", "PUSH_NULL")
GLOBALS: Final = ("LOAD_GLOBAL", "LOAD_NAME")


def asks_whether_it_exists(frame: FrameType, name: str) -> bool:
    """Return whether a frame that gets an attribute runs ``hasattr(object, name)``.

    For speed, call it only if ``name`` is a constant of the frame's code.
    """
    return _is_hasattr(frame.f_code, frame.f_lasti, name)


def tests_an_attribute(frame: FrameType, accessed: tuple[CodeType, int]) -> bool:
    """Return whether a frame that asks a value whether it is true has just got it from an attribute, and drops it.

    An object may keep the value in an attribute of its own, from which code in C reads it later.

    Args:
        accessed: the code that got the value from the request, and the place in it.
    """
    code, place = accessed
    return frame.f_code is code and _tests(code, frame.f_lasti, place)


@lru_cache(1024)
def _is_hasattr(code: CodeType, place: int, name: str) -> bool:
    called, *before = _before(code, place)
    is_named = bool(before) and before[0].argval == name
    return is_named and called.opname in CALLS and _begins_with("hasattr", before)


@lru_cache(1024)
def _tests(code: CodeType, place: int, accessed: int) -> bool:
    test, *before = _before(code, place)
    if not before or (before[0].opname, before[0].offset) != ("LOAD_ATTR", accessed):
        return False
    return test.opname.startswith(TESTS) or (test.opname in CALLS and _begins_with("bool", before))


def _begins_with(function: str, before: list[dis.Instruction]) -> bool:
    """Return whether the instructions before a call load a function and simple arguments."""
    for each in before:
        if each.opname in GLOBALS and each.argval == function:
            return True
        if not each.opname.startswith(LOADS):
            break
    return False


def _before(code: CodeType, place: int) -> list[dis.Instruction]:
    """Return the instruction at a place and those before it, the last first, without those that only prepare a call."""
    found = [each for each in dis.get_instructions(code) if each.offset <= place]
    return [each for each in reversed(found) if each.offset == place or each.opname != "PRECALL"]
