"""``make cluster`` and ``compose.yaml``: two machines with Redis, a Redis Cluster or nothing in common."""

import os
import re
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import psutil
import pytest
import yaml

from tests.waiting import PATIENCE, until

ROOT = Path(__file__).resolve().parents[2]
EXAMPLE = ROOT / "example_project"


COMMAND = [sys.executable, "-m", "cluster"]


def environment(path=os.environ["PATH"]):
    return {**os.environ, "PYTHONPATH": str(ROOT), "PATH": path}


def run_cluster(*arguments, path=os.environ["PATH"]):
    return subprocess.run(
        [*COMMAND, *arguments],
        cwd=EXAMPLE,
        env=environment(path),
        capture_output=True,
        text=True,
        check=False,
        timeout=500,
    )


@pytest.mark.servers
@pytest.mark.timeout(600)
def test_every_setup_is_measured_and_only_the_one_without_redis_returns_outdated_numbers():
    done = run_cluster("--writes", "3")
    assert done.returncode == 0, done.stderr
    number = r"([\d.,]+|never)"
    rows = re.findall(
        rf"^│ (\w+) +│ +{number} │ +{number} │ +{number} │ +{number} │ +{number} │$", done.stdout, re.MULTILINE
    )
    assert [row[0] for row in rows] == ["Redis", "Cluster", "none"]
    assert [row[1:3] == ("never", "never") for row in rows] == [False, False, True]
    assert [row[5] == "0" for row in rows] == [True, True, False]


@pytest.mark.servers
@pytest.mark.parametrize(("how", "during"), [("kill", "redis-server"), ("Ctrl-C", "cluster.machine")])
def test_an_interruption_ends_all_servers_and_processes(how, during):
    """``kill`` sends a signal to one process, and Ctrl-C in a terminal one to all."""
    with subprocess.Popen(
        [*COMMAND, "--writes", "1000"],
        cwd=EXAMPLE,
        env=environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as process:
        started = []

        def has_begun():
            started[:] = psutil.Process(process.pid).children(recursive=True)
            with suppress(psutil.NoSuchProcess):
                return any(during in word for each in started for word in each.cmdline())
            return False

        try:
            assert until(has_begun)
            if how == "kill":
                process.terminate()
            else:
                os.killpg(process.pid, signal.SIGINT)
            _, errors = process.communicate(timeout=PATIENCE)
            assert process.returncode == 1
            assert errors.endswith("Interrupted: all servers and processes have ended.\n")
            assert not any(each.is_running() for each in started)
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)


def test_a_computer_without_servers_gets_the_names_of_the_packages(tmp_path):
    done = run_cluster(path=str(tmp_path))
    assert done.returncode == 1
    assert re.match(r"make cluster needs the Debian packages redis-server( postgresql)?: make packages", done.stderr)


def test_the_configurations_in_the_containers_name_each_other():
    compose = yaml.safe_load((ROOT / "compose.yaml").read_text())
    configs = {name: yaml.safe_load(config["content"]) for name, config in compose["configs"].items()}
    used = {config["source"] for each in compose["services"].values() for config in each.get("configs", ())}
    assert used == set(configs)
    (job,) = configs["prometheus"]["scrape_configs"]
    assert job["static_configs"] == [{"targets": ["machine-a:8000", "machine-b:8000"]}]
    assert configs["datasource"]["datasources"][0]["url"] == "http://prometheus:9090"
