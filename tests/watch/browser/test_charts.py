"""The charts of a cache in the browser: one span, one pointer, the same marks, and stretches that the reader marks."""

import re

import pytest
from selenium.webdriver.common.action_chains import ActionChains
from selenium.webdriver.common.keys import Keys

from tests.waiting import until
from tests.watch.browser.cards import CAUSES, full_card
from tests.watch.browser.page import SOON, TWO_FRAMES, resize

MAIN = ["hit_ratio", "misses", "computing"]

LEFT, RIGHT = Keys.ARROW_LEFT, Keys.ARROW_RIGHT


def plot(page, chart):
    return page.find(f'figure[data-chart="{chart}"] [data-part="plot"]')


def when(page, chart):
    return page.text(f'figure[data-chart="{chart}"] [data-part="when"]')


def clock(page, at):
    return page.run("return new Date(arguments[0] * 1000).toLocaleTimeString('en-GB')", at)


INK = """
    const [chart, ...names] = arguments;
    const drawn = document.querySelector(`figure[data-chart="${chart}"] canvas`);
    const canvas = Object.assign(document.createElement("canvas"), { width: drawn.width, height: drawn.height });
    const context = canvas.getContext("2d", { willReadFrequently: true });
    context.drawImage(drawn, 0, 0);
    const { data } = context.getImageData(0, 0, canvas.width, canvas.height);
    const style = getComputedStyle(document.body);
    return names.map((name) => {
      const wanted = style.getPropertyValue(name).match(/[0-9a-f]{2}/g).map((each) => parseInt(each, 16));
      let number = 0;
      for (let i = 0; i < data.length; i += 4) {
        if (data[i + 3] > 140 && wanted.every((each, k) => Math.abs(each - data[i + k]) < 30)) number += 1;
      }
      return number;
    });
"""
"""Returns the numbers of pixels of a chart that have about the colors with these names."""


def inks(page, chart, *names):
    page.driver.execute_async_script(TWO_FRAMES)
    return [number > 5 for number in page.run(INK, chart, *names)]


def test_three_charts_are_shown_the_others_are_folded_and_none_is_blank(page, site):
    page.show(full_card(site))
    assert page.charts() == [*MAIN]
    page.unfold()
    assert page.charts() == [
        *(*MAIN, "requests", "entries", "memory", "removals", "load_ms", "store_ms", "store_errors"),
    ]
    for chart in page.charts():
        assert inks(page, chart, "--series-0") == [True], chart


def test_a_chart_of_what_did_not_happen_is_not_shown(page, site):
    page.show(site.card(history=site.history(entries=0.0, bytes=[None] * 30)))
    page.unfold()
    assert page.charts() == ["hit_ratio", "requests", "load_ms"]
    page.show(site.card(history=site.history(number=0)))
    assert page.charts() == []


def test_keys_have_the_values_of_the_last_step_and_causes_and_groups_their_names(page, site):
    history = site.history(
        hit_ratio=0.5,
        stale_ratio=0.25,
        misses={"another process": [2.0] * 30, "tag": [0.5] * 30},
        computing=[
            {"group": "shop", "seconds": [1.5] * 30},
            {"group": "", "seconds": [0.25] * 30},
            {"group": None, "seconds": [*[0.0] * 29, 0.1]},
        ],
    )
    page.show(site.card(history=history))
    assert page.values("hit_ratio") == {"Hits": "50.0%", "Stale": "25.0%"}
    assert page.values("misses") == {"Changed or deleted by another worker": "2", "Tag dropped": "0.5"}
    assert page.values("computing") == {"shop": "1.5 s", "other keys": "250 ms", "all others": "100 ms"}
    assert when(page, "misses") == "last 10 s"


def test_a_pointer_in_one_chart_shows_the_values_of_that_time_in_all(page, site):
    counted = [float(each) for each in range(30)]
    card = site.card(
        history=site.history(misses={"expired": counted}, requests_per_second=[2 * each for each in counted])
    )
    page.show(card)
    page.unfold()
    plot(page, "misses").send_keys(LEFT, LEFT, LEFT)
    assert page.values("misses") == {"Expired": "27"}
    assert until(lambda: page.values("requests") == {"Look-ups": "54"}, SOON)
    at = clock(page, card["history"]["at"][27])
    assert (when(page, "misses"), when(page, "requests")) == (at, at)
    assert page.text("#announcer") == f"{at}, Expired 27"
    # A refresh keeps the pointer of the keyboard at its time, and the focus.
    later = {**card["history"], "at": [each + 10 for each in card["history"]["at"]]}
    site.figures["caches"] = [{**card, "history": {**later, "misses": {"expired": [*counted[1:], 30.0]}}}]
    asked = len(site.asked)
    page.look_again()
    assert until(lambda: len(site.asked) > asked and page.values("misses") == {"Expired": "27"}, SOON)
    assert when(page, "misses") == at
    assert page.run("return document.activeElement.closest('figure').dataset.chart") == "misses"
    plot(page, "misses").send_keys(Keys.ESCAPE)
    assert until(lambda: page.values("misses") == {"Expired": "30"}, SOON)
    # The mouse does the same.
    over = page.find('[data-chart="misses"] .u-over')
    ActionChains(page.driver).move_to_element(over).perform()
    assert until(lambda: when(page, "hit_ratio") == when(page, "misses") != "last 10 s", SOON)


def test_marks_are_drawn_and_named_at_their_time(page, site):
    card = full_card(site)
    page.show(card)
    assert inks(page, "misses", "--text", "--danger") == [True, True]
    site.figures["caches"] = [{**card, "marks": []}]
    page.look_again()
    assert until(lambda: inks(page, "misses", "--text", "--danger") == [False, False], SOON)
    page.show(card)
    for chart in MAIN:
        # The release and the start were two minutes ago.
        plot(page, chart).send_keys(Keys.END, LEFT * 11)
        named = r"{at} · {at} release 7f3c · {at} 3 workers started".format(at=r"\d\d:\d\d:\d\d")
        assert re.fullmatch(named, when(page, chart)), chart
        assert "release 7f3c" in page.text("#announcer")
        plot(page, chart).send_keys(Keys.ESCAPE)


def test_a_key_is_a_button_that_hides_and_shows_its_line(page, site):
    page.show(site.card(history=site.history(misses={"deleted": [3.0] * 30, "expired": [1.0] * 30})))
    deleted, expired = page.all('[data-chart="misses"] .key')

    def lines():
        return inks(page, "misses", "--series-0", "--series-1")

    assert lines() == [True, True]
    expired.click()
    assert expired.get_attribute("aria-pressed") == "false"
    assert lines() == [True, False]
    page.look_again()
    deleted.send_keys(Keys.SPACE)
    assert lines() == [False, False]
    assert page.values("misses") == {"Deleted": "3", "Expired": "1"}
    expired.click()
    deleted.click()
    assert lines() == [True, True]


def test_a_line_keeps_its_color_and_place_when_another_one_becomes_the_largest(page, site):
    first = {"deleted": [3.0] * 30, "expired": [1.0] * 30, "unknown": [1.0] * 30}
    card = site.card(history=site.history(misses=first))
    page.show(card)
    colors = """
        return Object.fromEntries([...document.querySelectorAll('[data-chart="misses"] .key')]
          .map((key) => [key.firstElementChild.textContent, key.dataset.color]));
    """
    before = page.run(colors)
    assert len(set(before.values())) == 3
    page.find('[data-chart="misses"] .key').send_keys("")
    later = {"tag": [10.0] * 30, "expired": [9.0] * 30, "deleted": [4.0] * 30, "unknown": [1.0] * 30}
    site.figures["caches"] = [{**card, "history": site.history(misses=later)}]
    page.look_again()
    values = {"Deleted": "4", "Expired": "9", "Tag dropped": "10", "Unknown": "1"}
    assert until(lambda: list(page.values("misses").items()) == list(values.items()), SOON)
    assert before.items() <= page.run(colors).items()
    assert page.run("return document.activeElement.firstElementChild.textContent") == "Deleted"


def span(page):
    return page.text("#span-name")


def test_the_span_is_that_of_all_figures_and_in_the_address(page, site):
    page.show(full_card(site))
    assert span(page) == "Last hour"
    assert page.text("#span-note") == ""
    for seconds, name in ((600, "Last 10 minutes"), (21_600, "Last 6 hours"), (86_400, "Last 24 hours")):
        page.find(f'[data-span="{seconds}"]').click()
        assert until(lambda: span(page) == name, SOON)  # noqa: B023
        assert site.asked[-1].endswith(f"span={seconds}")
        assert page.run("return location.hash") == f"#cache=pages&span={seconds}"
        (pressed,) = page.all("#spans [aria-pressed=true]")
        assert pressed.get_attribute("data-span") == str(seconds)
    assert (
        page.find('[data-chart="misses"] .plot')
        .get_attribute("aria-label")
        .startswith("Misses per second, by cause, Last 24 hours: Deleted always 0.1, last 10 s 0.1; ")
    )
    page.driver.refresh()
    assert page.is_fresh()
    assert span(page) == "Last 24 hours"
    assert site.asked[-1].endswith("span=86400")
    site.figures["span"]["earliest"] = site.figures["at"] - 600
    page.look_again()
    assert until(lambda: page.text("#span-note") == f"Figures since {clock(page, site.figures['at'] - 600)}", SOON)


def answers_stretches(site):
    """Let the site answer as the server does: with the span that is asked for."""
    fixed = dict(site.figures["span"])

    def answered():
        found = re.search(r"from=(\d+)&until=(\d+)", site.asked[-1])
        if found is None:
            site.figures["span"] = fixed
            return None
        start, end = map(float, found.groups())
        site.figures["span"] = {**fixed, "from": start, "until": end, "is_now": False}
        return start, end

    return answered


def test_a_stretch_is_marked_with_the_mouse_and_given_back(page, site):
    at = site.figures["at"]
    page.show(full_card(site))
    answered = answers_stretches(site)
    over = page.find('[data-chart="computing"] .u-over')
    width = over.size["width"]
    site.asked.clear()
    mouse = ActionChains(page.driver).move_to_element_with_offset(over, -width // 4, 0).click_and_hold()
    mouse.move_by_offset(width // 2, 5).release().perform()
    assert until(lambda: site.asked, SOON)
    start, end = answered()
    # The middle half of the last hour, in whole steps.
    assert start == pytest.approx(at - 2700, abs=30)
    assert end == pytest.approx(at - 900, abs=30)
    assert (start % 10, end % 10) == (0, 0)
    page.look_again()
    name = f"{clock(page, start)} to {clock(page, end)}".replace(":00", "")
    assert until(lambda: span(page) == name, SOON, note=lambda: span(page))
    assert page.run("return location.hash") == f"#cache=pages&from={start:.0f}&until={end:.0f}"
    assert page.all("#spans [aria-pressed=true]") == []
    # It does not move, while the page is refreshed.
    asked = len(site.asked)
    assert until(lambda: len(site.asked) > asked, SOON)
    assert set(site.asked[asked:]) == {site.asked[0]}
    page.driver.refresh()
    assert page.is_fresh()
    assert span(page) == name
    back = page.find("#back")
    assert back.text == "Back to last hour"
    back.click()
    assert until(lambda: site.asked[-1].endswith("span=3600") and span(page) == "Last hour", SOON)
    assert not back.is_displayed()
    assert page.run("return document.activeElement.dataset.span") == "3600"


def test_a_stretch_is_marked_with_the_keyboard(page, site):
    page.show(full_card(site))
    ends = site.figures["caches"][0]["history"]["at"]
    answered = answers_stretches(site)
    chart = plot(page, "hit_ratio")
    site.asked.clear()

    def marked():
        return page.run("return document.querySelector('[data-chart=hit_ratio] .u-select').offsetWidth")

    chart.send_keys(Keys.END, LEFT * 4)
    chart.send_keys(Keys.SHIFT, LEFT * 5)
    assert marked() > 0
    assert "marked: Enter shows it" in page.text("#announcer")
    chart.send_keys(Keys.ESCAPE)
    assert marked() == 0
    chart.send_keys(Keys.ENTER)
    assert not any("from=" in each for each in site.asked)
    chart.send_keys(Keys.END, LEFT * 4)
    chart.send_keys(Keys.SHIFT, LEFT * 5)
    width = marked()
    page.look_again()
    assert until(lambda: len(site.asked) > 1, SOON)
    assert marked() == width
    chart.send_keys(Keys.ENTER)
    assert until(lambda: "from=" in site.asked[-1], SOON)
    assert answered() == (ends[-10] - 10, ends[-5])
    assert marked() == 0
    page.look_again()
    name = f"{clock(page, ends[-10] - 10)} to {clock(page, ends[-5])}"
    assert until(lambda: span(page) == name, SOON, note=lambda: span(page))
    assert page.text("#announcer") == name


def test_a_link_opens_its_span_and_anything_else_in_the_address_is_ignored(page, site):
    page.show(site.card())
    at = int(site.figures["at"])
    page.run("location.hash = arguments[0]", f"cache=pages&from={at - 900}&until={at - 300}&compare={at - 600}")
    assert until(lambda: f"compare={at - 600}&from={at - 900}&until={at - 300}" in site.asked[-1], SOON)
    page.run("location.hash = 'cache=pages&from=1&until=0&span=7&compare=x'")
    assert until(lambda: site.asked[-1].endswith("figures.json?details=pages&span=3600"), SOON)


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


def test_a_missing_step_is_a_gap_and_a_lone_point_is_seen(page, site):
    values = [None] * 30
    values[10] = 0.5
    page.show(site.card(history=site.history(hit_ratio=values)))
    assert inks(page, "hit_ratio", "--series-0") == [True]
    history = site.history(hit_ratio=0.5, number=2)
    page.show(site.card(history={**history, "at": [history["at"][0] - 900, history["at"][1]]}))
    plot(page, "hit_ratio").send_keys(Keys.HOME, RIGHT)
    assert page.values("hit_ratio") == {"Hits": "\N{EN DASH}"}


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_a_chart_is_drawn_again_in_the_colors_of_another_theme(page, site, theme):
    causes = {cause: [1.0] * 30 for cause in CAUSES}
    page.show(site.card(history=site.history(misses=causes)))
    features = [{"name": "prefers-color-scheme", "value": theme}]
    page.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": features})
    assert inks(page, "misses", *(f"--series-{each}" for each in (0, 1, 2, 3, 4, 7))) == [True] * 6


def test_a_chart_follows_the_width_of_the_window_and_the_size_of_the_text(page, site):
    page.show(full_card(site))
    size = "const canvas = document.querySelector('figure canvas'); return [canvas.clientWidth, canvas.clientHeight]"
    for width in (400, 1300, 700):
        resize(page.driver, width, 780)
        figure = page.find("figure").size["width"]
        assert until(lambda: abs(page.run(size)[0] - figure) <= 1, SOON)  # noqa: B023
    _, height = page.run(size)
    page.run("document.documentElement.style.fontSize = '200%'")
    assert until(lambda: page.run(size)[1] > 1.8 * height, SOON)


def test_what_no_worker_has_added_to_for_a_while_is_no_figure_of_now(page, site):
    history = site.history()
    span = {**site.figures["span"], "is_now": False}
    page.show(site.card(history=history), span=span)
    assert when(page, "hit_ratio") == clock(page, history["at"][-1])
