"""What a reader asks the page, in Debian's Chromium, with figures that the test chooses.

Is there a problem? Which group of keys is it? Since when: the charts, their stretches, and the download. What is in the
cache: its keys. What happened: the events. And in any width and theme.
"""

import re

import pytest
from selenium.webdriver.common.keys import Keys

from tests.waiting import until
from tests.watch.browser.axe import violations, violations_in_both_themes
from tests.watch.browser.canned import full_card, group
from tests.watch.browser.page import SOON, resize, set_offline
from wheelcache.pages.reasons import REASONS
from wheelcache.watch.dashboard.permissions import Permission

EVIL = "<img src=x onerror=alert(1)>"
LEFT = Keys.ARROW_LEFT


# Is there a problem?


def first_line(page):
    return page.find("body").text.splitlines()[0]


def test_the_first_line_states_the_worst_problem_and_the_others_follow(page, site):
    problems = [site.problem("b"), site.problem("a", "it is late"), site.problem(None, "worker 7 ended")]
    page.show(site.card("b"), site.card("a"), headline="Cache 'b': it is bad", problems=problems, advice=["Advice."])
    assert first_line(page) == "Cache 'b': it is bad"
    assert [each.text for each in page.all("#problems li")] == ["Cache 'a': it is late", "worker 7 ended"]
    assert [each.text for each in page.all("#advice li")] == ["Advice."]
    assert page.driver.title.startswith("▲ 3 · Caches of")
    # The server has sorted them.
    assert page.caches() == ["b", "a"]
    page.find("#problems button").click()
    assert page.find("section[data-cache]").get_attribute("data-cache") == "a"
    site.figures |= {"headline": "No problem", "problems": [], "advice": []}
    page.look_again()
    assert until(lambda: first_line(page) == page.text("#announcer") == "No problem", SOON)
    assert not page.all("#problems li, #advice li")


@pytest.mark.parametrize(
    ("status", "expected"),
    [(None, "The server has not answered since TIME"), (503, "No new figures since TIME: the server answered 503")],
)
def test_without_an_answer_the_first_line_and_the_title_say_so_until_there_is_one(page, site, status, expected):
    page.expected = ["503 (Service Unavailable)", "ERR_INTERNET_DISCONNECTED"]
    page.show(site.card(), headline="All is well", problems=[site.problem("pages")] * 2)
    site.status = status or 200
    set_offline(page.driver, offline=status is None)
    page.look_again()
    assert until(lambda: page.state() == "old", SOON)
    assert re.sub(r"\d\d:\d\d:\d\d", "TIME", page.text("#headline")) == expected
    assert page.driver.title == f"▲ {page.text('#headline')} \N{EN DASH} wheelcache"
    assert re.search(r"Figures are .* old, of \d\d:\d\d:\d\d: the server ", page.text("#banner-text"))
    assert not page.all("#problems li")
    site.status = 200
    set_offline(page.driver, offline=False)
    page.run("document.getElementById('retry').click()")
    assert until(lambda: page.text("#headline") == "All is well", SOON)
    assert not page.find("#banner").is_displayed()


def test_who_is_logged_out_sees_the_last_figures_and_a_link_to_the_login(page, site):
    page.expected = ["401 (Unauthorized)"]
    page.show(full_card(site))
    site.status = 401
    page.look_again()
    assert until(lambda: page.state() == "login", SOON)
    assert "log in" in page.text("#banner-text")
    assert page.figure("hit_ratio") == "93.0%"
    assert page.find("#login").is_displayed()


@pytest.mark.parametrize("place", ["groups", "misses", "store", "pages", "workers", "loads"])
def test_the_verdict_on_a_cache_leads_to_the_section_that_shows_what_is_wrong(page, site, place):
    sentence = {"state": "bad", "text": "Something is <b>wrong</b>.", "place": place}
    page.show({**full_card(site), "sentence": sentence})
    assert page.text('[data-part="verdict-text"]') == sentence["text"]
    page.find('[data-part="verdict-link"]').click()
    section = page.find(f'[data-part="{place}"]')
    is_open = "return arguments[0].contains(document.activeElement) && arguments[0].open !== false"
    assert page.run(is_open, section)
    site.figures["caches"][0]["sentence"] = {"state": "good", "text": "All is well.", "place": None}
    page.look_again()
    assert until(lambda: page.text('[data-part="verdict-text"]') == "All is well.", SOON)
    assert not page.find('[data-part="verdict-link"]').is_displayed()
    assert page.run(is_open, section), "a refresh keeps the section open, and the focus"


def test_25_caches_are_a_table_that_can_be_sorted_and_filtered_and_whose_choice_is_in_the_address(page, site):
    def card(number):
        figures = {"hit_ratio": 1 - number / 100, "stale_ratio": 0.0, "requests_per_second": 1.0 + number % 5}
        return site.card(f"cache {number:02}", figures=figures, now={"entries": number})

    page.show(*map(card, range(1, 26)))
    for column, first in (("hit_ratio", "cache 01"), ("hit_ratio", "cache 25"), ("requests", "cache 04")):
        page.find(f'#overview thead [data-column="{column}"] button').click()
        assert (len(page.caches()), page.caches()[0]) == (25, first)
    assert page.find('#overview [aria-sort="descending"]').text.startswith("Look-ups/s")
    page.find("#filter").send_keys("CACHE 2")
    assert page.caches() == ["cache 24", *(f"cache {number}" for number in (23, 22, 21, 20, 25))]
    page.select("cache 24")
    assert site.asked[-1].endswith("?details=cache+24&span=3600")
    page.driver.refresh()
    assert until(lambda: page.all('section[data-cache="cache 24"]'), SOON)


# Which group of keys?


@pytest.mark.parametrize("granted", [set(Permission), {Permission.INSPECT}, {Permission.OPERATE}])
def test_a_row_of_a_group_opens_its_causes_its_figures_and_its_keys(page, site, granted):
    site.granted = granted
    rows = [[EVIL, 2048, 90.5, 2], ["session…", 1, "never expires", 1]]
    answer = {"is_over": True, "text": "2 keys", "failures": [], "rows": rows}
    site.answers = [{"token": "t"}, answer]
    shop = group("shop", 3.0, deleted=3, expired=1, requests=10, hit_ratio=0.6, loads=4, load_failures=2, puts=2)
    sentence = {"state": "bad", "text": "shop fails.", "place": "groups", "group": "shop"}
    page.show(site.card(groups=[shop, group("", 1.0)], sentence=sentence))
    assert page.text('[data-part="verdict-link"]') == "Show “shop”"
    page.find('[data-part="verdict-link"]').click()
    assert page.facts("causes") == [["Deleted", "3 · 75.0%"], ["Expired", "1 · 25.0%"]]
    assert [number for _, number in page.facts("figures")] == ["10", "4", "2", "4", "2", "750 ms"]
    may_see, may_delete = Permission.INSPECT in granted, len(granted) > 1
    assert page.find('.opened [data-part="keys"]').is_displayed() == may_see
    if may_see:
        assert until(lambda: [each.text.split("\n")[0] for each in page.all(".opened li")] == [EVIL, "session…"], SOON)
        # The keys of sessions are hidden in part, so that they are not deleted here.
        assert len(page.all(".opened li button")) == may_delete
    assert violations(page.driver) == []
    page.find('[data-group="shop"] button').click()
    assert not page.all(".opened")
    assert ("action=find&kind=group&text=shop&cache=pages" in site.posted) == may_see


# Since when?


def plot(page, chart):
    return page.find(f'figure[data-chart="{chart}"] [data-part="plot"]')


def when(page, chart):
    return page.text(f'figure[data-chart="{chart}"] [data-part="when"]')


def clock(page, at):
    return page.run("return new Date(arguments[0] * 1000).toLocaleTimeString('en-GB')", at)


def test_a_pointer_in_one_chart_shows_the_values_and_marks_of_that_time_in_all(page, site):
    counted = [float(each) for each in range(30)]
    card = full_card(site)
    card["history"] |= {"misses": {"expired": counted}, "requests_per_second": [2 * each for each in counted]}
    page.show(card)
    page.unfold()
    assert (page.values("misses"), when(page, "misses")) == ({"Expired": "29"}, "last 10 s")
    plot(page, "misses").send_keys(LEFT, LEFT, LEFT)
    at = clock(page, card["history"]["at"][27])
    assert page.values("misses") == {"Expired": "27"}
    assert until(lambda: page.values("requests") == {"Look-ups": "54"} and when(page, "requests").startswith(at), SOON)
    assert page.text("#announcer").startswith(f"{at}, Expired 27")
    # The release and the start were two minutes ago.
    plot(page, "misses").send_keys(Keys.END, LEFT * 11)
    assert re.search(r"release 7f3c · \d\d:\d\d:\d\d 3 workers started$", when(page, "misses"))
    plot(page, "misses").send_keys(Keys.ESCAPE)
    assert until(lambda: page.values("misses") == {"Expired": "29"}, SOON)
    key = page.find('[data-chart="misses"] .key')
    key.click()
    assert key.get_attribute("aria-pressed") == "false"


def test_the_span_is_that_of_all_figures_and_in_the_address(page, site):
    page.show(full_card(site))
    for seconds, name in ((600, "Last 10 minutes"), (86_400, "Last 24 hours")):
        page.find(f'[data-span="{seconds}"]').click()
        assert until(lambda: page.text("#span-name") == name, SOON)  # noqa: B023
        assert site.asked[-1].endswith(f"span={seconds}")
        assert page.run("return location.hash") == f"#cache=pages&span={seconds}"
    site.figures["span"]["earliest"] = site.figures["at"] - 600
    page.look_again()
    assert until(lambda: page.text("#span-note") == f"Figures since {clock(page, site.figures['at'] - 600)}", SOON)
    at = int(site.figures["at"])
    page.run("location.hash = arguments[0]", f"cache=pages&from={at - 900}&until={at - 300}&compare={at - 600}")
    assert until(lambda: f"compare={at - 600}&from={at - 900}&until={at - 300}" in site.asked[-1], SOON)


def test_a_stretch_is_marked_with_the_keyboard_and_given_back(page, site):
    page.show(full_card(site))
    ends = site.figures["caches"][0]["history"]["at"]
    since, until_ = ends[-10] - 10, ends[-5]
    chart = plot(page, "hit_ratio")
    chart.send_keys(Keys.END, LEFT * 4)
    chart.send_keys(Keys.SHIFT, LEFT * 5)
    assert "marked: Enter shows it" in page.text("#announcer")
    site.figures["span"] |= {"from": since, "until": until_, "is_now": False}
    chart.send_keys(Keys.ENTER)
    assert until(lambda: f"from={since:.0f}&until={until_:.0f}" in site.asked[-1], SOON)
    assert until(lambda: page.text("#span-name") == f"{clock(page, since)} to {clock(page, until_)}", SOON)
    back = page.find("#back")
    assert back.text == "Back to last hour"
    back.click()
    assert until(lambda: site.asked[-1].endswith("span=3600") and not back.is_displayed(), SOON)


def test_all_charts_are_downloaded_as_csv_with_times_in_utc(page, site):
    misses = {"expired": [float(each) for each in range(30)]}
    computing = [{"group": 'a "b", c', "seconds": [*[None] * 29, 1.0]}]
    page.show(site.card(history=site.history(misses=misses, computing=computing)))
    heads, *rows = page.csv()
    assert heads[0] == "Time (UTC)"
    assert [len(row) for row in rows] == [len(heads)] * 30
    assert [row[0] for row in rows[-2:]] == ["2023-11-14T22:13:10.000Z", "2023-11-14T22:13:20.000Z"]
    assert [row[heads.index("Misses per second, by cause: Expired")] for row in rows[-2:]] == ["28", "29"]
    assert [row[heads.index('Time computing per minute, by group: a "b", c')] for row in rows[-2:]] == ["", "1"]


# What is in the cache?


def test_a_cache_shows_its_hits_its_memory_its_loads_and_its_store(page, site):
    page.show(full_card(site))
    page.unfold()
    figures = {
        "ratio_label": "Hit ratio, with store",
        "hit_ratio": "93.0%",
        "requests_per_second": "17",
        "shares": "90.0% here · 3.0% store · 4.0% stale · 3.0% missed",
        "memory": "2 KiB",
        "max_memory": "of 4 KiB",
        "entries_note": "5 of 10 entries in 3 workers",
        "load_p50": "≈31 µs",
        "computing": "7.5 s",
        "store_breaker": "open in 1 of 2 workers",
        "store_tracking": "not in 1 of 2 workers",
        "store_errors": "8",
        "pages_not_stored": "33",
    }
    assert {name: page.figure(name) for name in figures} == figures
    assert page.facts("settings") == [["MAX_ENTRIES", "10"]]
    first, _ = page.all('[data-part="reasons"] details')
    cause = REASONS["set-cookie"]
    assert first.text.splitlines()[:2] == ["set-cookie 30", f"{cause.cause} {cause.advice}"]
    assert "/basket 25" in first.text


def answer(text, **parts):
    return {"is_over": True, "workers": 1, "text": text, "failures": [], "heads": [], "rows": [], "latest": {}, **parts}


def test_a_key_is_found_sampled_and_deleted_after_a_confirmation(page, site):
    page.show(site.card())
    page.find('[data-part="inspection"] summary').click()

    def state():
        return page.text('[data-part="state"]')

    heads = ["Worker", "Entry", "Time left", "Size", "Type", "Tags"]
    row = ["4242", "present", 90.5, 2048, "str", "<b>a tag</b>"]
    waiting = answer("1 of 2 workers have answered …", is_over=False)
    found = answer("Present", heads=heads, rows=[row], failures=["No answer from worker 4343"])
    site.answers = [{"token": "t"}, waiting, found]
    page.find('[name="text"]').send_keys("k")
    page.find('[data-part="inspection"] form button').click()
    assert until(lambda: state() == "Present. No answer from worker 4343", SOON)
    assert page.facts("found") == [["4242", "present", "90.5 s", "2 KiB", "str", "<b>a tag</b>"]]
    site.answers = [{"token": "t"}, answer("Deleted")]
    assert "The key “k” will be deleted from pages, in all workers" in page.press('[data-part="delete"]', sure=False)
    assert site.posted[-1] == "token=t"
    page.press('[data-part="delete"]')
    assert until(lambda: state() == "Deleted", SOON)
    assert "kind=key&text=k&action=delete&cache=pages" in site.posted
    rows = [[key, 1000, "never expires", 1] for key in (EVIL, "x" * 10_000, "session…")]
    sample = answer("The largest", heads=["Key", "Size", "Time left", "Workers"], rows=rows, latest={EVIL: 1})
    site.answers = [{"token": "t"}, sample] * 5
    page.find('[data-part="sample"]').click()
    assert until(lambda: page.facts("hottest") == [[EVIL, "100%"]], SOON)
    assert len(page.all('[data-part="found"] tbody button')) == 2, "a hidden key cannot be searched for"
    assert page.run("return document.documentElement.scrollWidth <= innerWidth")
    assert violations_in_both_themes(page.driver) == []


def test_a_rehearsal_shows_its_result_the_views_and_what_to_mend(page, site):
    numbers = {"visits": 1200, "hits": 900, "compared": 45, "wrong": 2, "outdated": 0, "noise": 7, "unclear": 1}
    finding = {"sentence": "wrong: news.list, /a?<b>, line 7", "details": ["stored:  <i>you", "visitor: <i>ada"]}
    views = [{"view": "news.list", **numbers}]
    rehearsal = {"sentence": "Apply this.", "block": "rules=[...]", "mode": "rehearse", "views": views}
    page.show(site.card() | {"rehearsal": {**rehearsal, "findings": [finding]}})
    page.unfold()
    assert page.facts("rehearsal") == [["news.list", "1,200", "900", "45", "2", "0", "7", "1"]]
    for text in ("Apply this.", "rules=[...]", "Mode: rehearse", finding["sentence"], *finding["details"]):
        assert text in page.text('[data-part="rehearsal"]')


# What happened?


def test_events_are_a_short_list_and_all_of_them_during_an_incident_or_if_the_reader_wants(page, site):
    at = site.figures["at"]
    cleared = [{"at": at - n, "since": at - n, "kind": "cleared", "cache": None, "text": f"by {n}"} for n in range(11)]
    outage = {"at": at, "since": at - 600, "kind": "store failed", "cache": EVIL, "text": EVIL}
    page.show(site.card(), events=[outage, *cleared], problems=[])

    def rows():
        return page.run("return [...document.querySelectorAll('#events tbody tr')].map((row) => row.innerText)")

    last, *cells = rows()[0].split("\t")
    assert cells[:2] == ["Store failed", EVIL]
    assert re.fullmatch(rf"{re.escape(EVIL)}, from (.*:\d\d) to {last}", cells[2])
    assert rows()[1].split("\t")[1:] == ["Cleared", "all", "by 0"]
    assert page.all("main img") == []
    assert len(rows()) == 3
    site.figures["problems"] = [site.problem("pages")]
    page.look_again()
    assert until(lambda: len(rows()) == 12, SOON)
    site.figures["problems"] = []
    page.look_again()
    assert until(lambda: len(rows()) == 3, SOON)
    page.find("#events-more").click()
    assert len(rows()) == 12


# Numbers and times in words.

WORDS = {
    "percent(0.9996)": "99.9%",
    "percent(0.0001)": "0.1%",
    "percent(1)": "100%",
    "rate(9.994)": "9.99",
    "rate(10.4)": "10",
    "rate(123456)": "123K",
    "duration(119)": "119 s",
    "duration(120)": "2 min",
    "duration(7199)": "120 min",
    "duration(7200)": "2 h",
    "duration(172800)": "2 days",
    "bytes(1023)": "1,020 B",
    "bytes(1024)": "1 KiB",
    "milliseconds(0.5)": "500 µs",
    "milliseconds(1000)": "1 s",
    "estimate(0.01)": "<10 µs",
    "estimate(37.5)": "≈38 ms",
    "estimate(10000)": ">10 s",
    "estimate(null)": "\N{EN DASH}",
    "groupName('')": "other keys",
    "plural(1, 'entry', 'entries')": "1 entry",
}


def test_a_number_has_a_unit_and_three_digits(page):
    page.show()
    calls = ", ".join(f"words.{call}" for call in WORDS)
    found = page.run(f"return import('./words.js').then((words) => [{calls}])")
    assert dict(zip(WORDS, found, strict=True)) == WORDS


# In any width and theme.


def test_at_each_of_nine_widths_nothing_has_to_be_scrolled_sideways_and_no_heading_is_cut(page, site):
    page.show(full_card(site), site.card("other 1"), problems=[site.problem("pages", "x" * 200)] * 2)
    page.unfold()
    page.find("[data-group] button").click()
    for width in (360, 390, 480, 600, 768, 1024, 1280, 1600, 1920):
        resize(page.driver, width, 1000)
        assert page.run("return document.documentElement.scrollWidth") <= width
        assert page.run(CUT) == [], width
        page.find("[data-action=clear]").click()
        assert page.run("return document.querySelector('dialog').getBoundingClientRect().right") <= width
        page.find("#confirm-no").click()


CUT = """
    const edges = (node) => node.getBoundingClientRect();
    const isCut = (node) => node.scrollWidth > node.clientWidth + 1
      || edges(node).left < edges(node.parentElement).left - 1
      || edges(node).right > edges(node.parentElement).right + 1;
    const selector = "thead th, thead button, h1, h2, h3, .label, .title, .what, .key, .key span";
    const heads = document.querySelectorAll(selector);
    return [...heads].filter((each) => each.offsetWidth > 1 && isCut(each)).map((each) => each.textContent);
"""
"""Returns the headings and names that are wider than they may be, or that leave their parent."""


def test_axe_finds_no_violation_in_both_themes_on_a_phone_in_a_dialog_and_without_caches(page, site):
    page.show(full_card(site), site.card("other 1"), problems=[site.problem("pages")], advice=["Advice."])
    page.unfold()
    assert violations_in_both_themes(page.driver) == []
    resize(page.driver, 375, 780)
    page.find("[data-action=clear]").click()
    assert violations(page.driver) == []
    page.show(headline="There is no cache", problems=[])
    assert page.find("#empty").text.startswith("This site has no wheelcache cache.")
    assert violations(page.driver) == []


def test_names_are_text(page, site):
    card = full_card(site, EVIL)
    card |= {"settings": [[EVIL, EVIL]], "groups": [group(EVIL)], "sentence": {**card["sentence"], "text": EVIL}}
    card["pages"] |= {"not_stored_paths": {"private": {EVIL: 3}}, "full_variants": {EVIL: {EVIL: 3}}}
    card["comparison"] |= {"release": EVIL, "sentence": EVIL}
    page.show(card, headline=EVIL, problems=[site.problem(EVIL, EVIL)] * 2, advice=[EVIL], title=EVIL)
    page.unfold()
    assert page.caches() == [EVIL]
    assert page.all("img") == []
    page.press("[data-action=clear]")
    assert page.text("#confirm-heading") == f"Clear “{EVIL}”?"
