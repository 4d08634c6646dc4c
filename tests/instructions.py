"""The instructions that a test watches: CPython may deliver an exception, or collect garbage, between two of them."""

import sys

TOOL = 3
"""An identifier of ``sys.monitoring`` that no kind of tool reserves."""


def run_watched(run, called, before_instruction):
    """Call ``run()``. Meanwhile, call ``called(frame)`` when a function begins, which returns whether the function is
    watched, and ``before_instruction(frame)`` before each instruction of those. Their exceptions are raised there.

    This is no context manager: the functions of one would be watched, too.
    """
    monitoring = getattr(sys, "monitoring", None)
    frames = set()

    def trace(frame, event, arg):
        if event == "call":
            if not called(frame):
                return None
            frames.add(frame)
            frame.f_trace_lines = False
            frame.f_trace_opcodes = monitoring is None
            return trace
        if event == "opcode":
            before_instruction(frame)
        elif event == "return":
            frames.discard(frame)
        return trace

    def instruction(code, offset):
        frame = sys._getframe(1)
        if frame in frames:
            before_instruction(frame)

    before = sys.gettrace()
    if monitoring is not None:
        # Since Python 3.13, settrace omits instructions of functions that were called before it.
        monitoring.use_tool_id(TOOL, "tests")
        monitoring.register_callback(TOOL, monitoring.events.INSTRUCTION, instruction)
        monitoring.set_events(TOOL, monitoring.events.INSTRUCTION)
    sys.settrace(trace)
    try:
        run()
    finally:
        sys.settrace(before)
        if monitoring is not None:
            monitoring.set_events(TOOL, 0)
            monitoring.free_tool_id(TOOL)
        frames.clear()
