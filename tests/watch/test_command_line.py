"""The commands that both frameworks share, without a framework."""

import sys
import time
from argparse import ArgumentParser, ArgumentTypeError
from datetime import UTC, datetime, timedelta, timezone
from zoneinfo import ZoneInfo

import pytest

from wheelcache.engine.codec import size_of
from wheelcache.pages.figures import Figures
from wheelcache.watch import site_commands
from wheelcache.watch.command_line import add_commands, moment
from wheelcache.watch.console import date_of
from wheelcache.watch.inquiries import Answers
from wheelcache.watch.site_commands import SHOWN
from wheelcache.watch.tables import STEP


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["nonsense"], "invalid choice: 'nonsense'"),
        (["get"], "the following arguments are required: KEY"),
        (["purge"], "the following arguments are required: URL"),
        (["keys", "--show-value"], "unrecognized arguments: --show-value"),
        (["save"], "invalid choice: 'save'"),
        (["load"], "invalid choice: 'load'"),
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
        (["--json", "--level", "2", "get", "key"], "2", True),
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


@pytest.mark.parametrize("width", [40, 80, 200])
def test_in_a_narrow_terminal_columns_are_in_further_tables(another_worker, command, monkeypatch, width):
    for pid in (4242, 4243):
        another_worker("pages", pid, entries=500, hits=1500)
    monkeypatch.setenv("COLUMNS", str(width))
    shown, reason = command()
    assert reason is None
    lines = shown.splitlines()
    assert max(map(len, lines)) <= width
    assert "…" not in shown
    number = sum("cache and workers" in line for line in lines)
    assert (number > 1) == (width < 200)
    assert sum(line.lstrip().startswith("4242 ") for line in lines) == number
    for name in ("hit_ratio_now", "stampedes_prevented", "expirations", "lag"):
        assert name in SHOWN
        assert all(word in shown for word in name.split("_"))
    assert shown.count("%") == 6, "only the hit ratios, now and in total, are percentages"
    assert shown.count("1,500") == 2
    assert shown.count("3,000") == 1


def test_a_purge_that_fails_in_one_cache_reports_the_pages_that_are_gone(another_worker, command, monkeypatch):
    def keep_pages(cache, clock):
        cache.engine.keep_pages(Figures(), clock, purge=len, before_clear=list)

    def ask(site, workers, name, inquiry):
        return Answers([], [], [4243]) if name == "one" else Answers([(4242, {"purged": 3})], [], [])

    for pid, name in ((4242, "all"), (4243, "one"), (4244, "other")):
        another_worker(name, pid, use=keep_pages)
    monkeypatch.setattr(site_commands, "ask", ask)
    reason = "No answer from worker 4243"
    shown, given = command("purge", "example.com")
    assert shown.splitlines() == [
        "'all': removed 3 pages in 1 worker for example.com.",
        "'one': removed 0 pages in 0 workers for example.com.",
        "'other': removed 3 pages in 1 worker for example.com.",
    ]
    assert given == reason
    document, given = command("purge", "example.com", "--json")
    assert [(each["cache"], each["pages"]) for each in document] == [("all", 3), ("one", 0), ("other", 3)]
    assert given == reason


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


@pytest.mark.compiled
def test_misses_come_with_the_advice_about_keys(another_worker, command):
    def use(cache, clock):
        for number in range(1_000):
            if number % 10 == 0:
                cache.delete_tags("all")
            if cache.get(number % 10) is None:
                cache.set(number % 10, "value", tags=("all",))

    another_worker("pages", 4242, use=use)
    sentence = "ropped tags cause 99% of its misses. Use narrower tags for keys."
    assert command("misses")[0].endswith(f"\nD{sentence}\n")
    assert command("misses", "--json")[0][0]["advice"] == [f"d{sentence}"]


def test_the_misses_of_a_cache_without_a_worker_fail_also_if_another_cache_has_one(
    make, clock, another_worker, command
):
    cache = make("old")
    cache.get("user:1")
    clock.advance(5)
    cache.close()
    another_worker("pages", 4242, entries=1)
    shown, reason = command("misses", "--cache", "old")
    assert shown.startswith("Cache 'old': 1 of 1 look-ups missed")
    assert reason == "No worker has the cache 'old' now; these are its last figures."
    assert command("misses")[1] is None
    assert command("misses", "--cache", "none") == (
        "",
        "No worker has a cache 'none': there are 'old', 'pages'.",
    )


def test_without_rich_only_tables_are_missing(worker, command, monkeypatch):
    worker({"key": (1, None)})
    monkeypatch.setitem(sys.modules, "rich.console", None)
    assert command("--json")[1] is None
    shown, reason = command()
    assert shown == ""
    assert "pip install rich, or pip install '.[cli]' in a checkout of wheelcache" in reason


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
