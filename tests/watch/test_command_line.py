"""The commands that both frameworks share, without a framework."""

import time
from argparse import ArgumentParser, ArgumentTypeError
from datetime import UTC, datetime, timedelta, timezone
from zoneinfo import ZoneInfo

import pytest

from wheelcache.engine.codec import size_of
from wheelcache.watch.command_line import add_commands, moment
from wheelcache.watch.console import date_of
from wheelcache.watch.tables import STEP


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["nonsense"], "invalid choice: 'nonsense'"),
        (["get"], "the following arguments are required: KEY"),
        (["purge"], "the following arguments are required: URL"),
        (["why", "/", "--limit", "3"], "unrecognized arguments: --limit 3"),
        (["--watch", "nan"], "must be a number of seconds above 0, not 'nan'"),
    ],
)
def test_an_invalid_command_line_is_a_usage_error(command, capsys, arguments, complaint):
    with pytest.raises(SystemExit, match="2"):
        command(*arguments)
    assert complaint in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (["--watch", "3", "clear"], "--watch is only for the figures: leave it out of clear."),
        (["--watch", "3", "--json"], "--json prints one document: leave --watch out."),
        (["--watch"], "--watch needs a terminal, and the output is not one: leave --watch out."),
    ],
)
def test_a_command_that_cannot_be_run_is_refused(command, arguments, reason):
    assert command(*arguments) == ("", reason)


@pytest.mark.parametrize("arguments", [[], ["--json"], ["keys"], ["misses"], ["clear"], ["purge", "example.com"]])
def test_without_a_worker_a_command_names_the_places_where_it_looked(command, path, arguments):
    assert command(*arguments)[1].startswith(f"No worker of this site publishes figures. Looked in {path}, as user ")


@pytest.mark.parametrize(
    ("arguments", "level", "as_json"),
    [
        (["get", "key"], "1", False),
        (["get", "--level", "2", "--json", "key"], "2", True),
        (["--level", "2", "get", "key", "--json"], "2", True),
    ],
)
def test_json_and_the_options_of_a_framework_may_precede_and_follow_the_command(arguments, level, as_json):
    parser = ArgumentParser()
    parser.add_argument("--level", default="1")
    add_commands(parser)
    options = parser.parse_args(arguments)
    assert (options.action, options.target, options.level, options.json) == ("get", "key", level, as_json)


def test_names_are_no_markup_and_bytes_have_units(another_worker, command):
    another_worker("[red]:bug:\x1b[2J", 4242, entries=100, max_weight=10_000, weigher=size_of)
    shown, _ = command()
    assert r"[red]:bug:\x1b[2J" in shown
    assert "\x1b" not in shown
    assert " KiB" in shown
    assert "max" in shown


def lose_keys(cache, clock):
    """Miss keys that expired, that are new, and that a stranger made up; compute one."""
    cache.set("user:1", "value", 10)
    clock.advance(11)
    for key in ("user:1", "user:1", "user:2", "\x1b[31m[bold]:1"):
        cache.get(key)
    # In the step of the other groups, nothing is computed.
    clock.advance(STEP)
    cache.get_or_load("city:1", lambda: clock.advance(1.5))


@pytest.mark.compiled
def test_misses_are_shown_by_cause_and_by_group(another_worker, command):
    for pid in (4242, 4243):
        another_worker("pages", pid, use=lose_keys)
    another_worker("unused", 4244, entries=1)
    shown, reason = command("misses", "--cache", "pages")
    assert reason is None
    first, *lines = [line.rstrip() for line in shown.splitlines()]
    assert first == "Cache 'pages': 10 of 10 look-ups missed"
    rows = [line.split() for line in lines]
    assert ["First", "request,", "or", "forgotten", "6", "60.0%"] in rows
    assert ["Expired", "4", "40.0%"] in rows
    assert ["city", "2", "0.0%", "First", "request,", "or", "forgotten", "100.0%", "2", "0", "3.0", "0"] in rows
    assert ["user", "6", "0.0%", "Expired", "66.7%", "0", "0", "0.0", "0"] in rows
    assert "\x1b" not in shown
    assert "(other)" not in shown, "all keys are in groups"
    assert r"\x1b[31m[bold]" in shown
    assert "Cache 'unused': 0 of 0 look-ups missed\n" in command("misses")[0]


@pytest.mark.parametrize("zone", ["UTC", "Asia/Kolkata", "America/New_York"])
def test_a_moment_has_the_zone_of_the_terminal_or_its_own(monkeypatch, zone):
    monkeypatch.setenv("TZ", zone)
    time.tzset()
    try:
        whole = datetime(2026, 11, 26, 14, 5, tzinfo=UTC).timestamp()
        assert moment("2026-11-26T14:05Z") == moment("2026-11-26T16:05+02:00") == whole
        assert moment("2026-11-26T14:05") == datetime(2026, 11, 26, 14, 5, tzinfo=ZoneInfo(zone)).timestamp()
        assert date_of(whole).endswith(f" {datetime.fromtimestamp(whole, ZoneInfo(zone)):%Z}")
        now = time.time()
        for ago in (60.0, 80_000.0):
            for at in (ZoneInfo(zone), timezone(timedelta(hours=-9, minutes=-30))):
                written = datetime.fromtimestamp(now - ago, at)
                assert moment(written.timetz().isoformat()) == pytest.approx(now - ago, abs=1.0)
    finally:
        monkeypatch.undo()
        time.tzset()


@pytest.mark.parametrize("text", ["", "noon", "25:00", "14:05+99:00", "2026-13-01T00:00", "14:05 CET"])
def test_a_moment_that_is_no_time_is_refused(text):
    with pytest.raises(ArgumentTypeError, match="must be a time such as 14:05"):
        moment(text)
