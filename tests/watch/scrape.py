"""The metrics as Prometheus sees them: a parsed response to a scrape, and promtool."""

import shutil
import subprocess
from pathlib import Path

from prometheus_client import parser

ROOT = Path(__file__).parents[2]


def promtool(*arguments, given=b""):
    """Run promtool in ``docs``, and return its exit code and output."""
    program = shutil.which("promtool") or shutil.which(ROOT / ".fetched" / "promtool")
    if program is None:
        raise RuntimeError("these tests need promtool in the PATH or in .fetched: make packages")
    command = [program, *arguments]
    done = subprocess.run(command, input=given, cwd=ROOT / "docs", capture_output=True, timeout=250, check=False)
    return done.returncode, (done.stdout + done.stderr).decode()


class Scrape:
    """A parsed response to a scrape."""

    def __init__(self, text):
        # The parser removes the suffix of the names of counters.
        self.families = {
            f"{each.name}_total" if each.type == "counter" else each.name: each
            for each in parser.text_string_to_metric_families(text)
        }
        samples = [each for family in self.families.values() for each in family.samples]
        self.values = {(each.name, frozenset(each.labels.items())): each.value for each in samples}
        assert len(self.values) == len(samples), "no time series is there twice"

    def __call__(self, name, cache="pages", **labels):
        """Return a value; None if it is missing."""
        return self.values.get((f"wheelcache_{name}", frozenset({"cache": cache, **labels}.items())))
