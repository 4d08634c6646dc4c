"""``make cluster`` and ``compose.yaml``: two machines of two workers each, which share a Redis."""

import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[2]
EXAMPLE = ROOT / "example_project"


@pytest.mark.servers
def test_all_four_workers_see_every_write_and_the_delays_are_printed():
    command = [sys.executable, "-m", "cluster"]
    done = subprocess.run(command, cwd=EXAMPLE, capture_output=True, text=True, check=False, timeout=110)
    assert (done.returncode, done.stderr) == (0, "")
    rows = re.findall(r"^(\w\d) +([\d.]+) +([\d.]+) +([\d.]+) +([\d.]+)$", done.stdout, re.MULTILINE)
    assert [row[0] for row in rows] == ["a1", "a2", "b1", "b2"]
    # The workers wait for a value for ten seconds, as long as no copy would end by itself.
    assert all(float(delay) < 10_000 for row in rows for delay in row[1:])


def test_the_files_that_the_containers_are_made_of_exist():
    compose = yaml.safe_load((ROOT / "compose.yaml").read_text())
    services = compose["services"]
    assert set(services) == {"valkey", "machine-a", "machine-b", "prometheus", "grafana"}
    copied = re.findall(r"^COPY (.*) \S+$", compose["x-machine"]["build"]["dockerfile_inline"], re.MULTILINE)
    mounted = [volume.split(":")[0] for each in services.values() for volume in each.get("volumes", ())]
    names = [*" ".join(copied).split(), *mounted]
    assert len(names) == 8
    assert [name for name in names if not (ROOT / name).exists()] == []


def test_the_configurations_in_the_containers_name_each_other():
    compose = yaml.safe_load((ROOT / "compose.yaml").read_text())
    configs = {name: yaml.safe_load(config["content"]) for name, config in compose["configs"].items()}
    used = {config["source"] for each in compose["services"].values() for config in each.get("configs", ())}
    assert used == set(configs)
    (job,) = configs["prometheus"]["scrape_configs"]
    assert job["static_configs"] == [{"targets": ["machine-a:8000", "machine-b:8000"]}]
    assert configs["datasource"]["datasources"][0]["url"] == "http://prometheus:9090"
