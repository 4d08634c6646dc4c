"""The form that inspects the entries of a cache, in the browser, with canned answers."""

import pytest

from tests.waiting import until
from tests.watch.browser.axe import violations_in_both_themes
from tests.watch.browser.page import SOON
from wheelcache.watch.dashboard.permissions import Permission

KEYS = ["<img src=x onerror=alert(1)>", "two\nlines", "ключ 💥 \u202eabc", "x" * 10_000]
DELETED = "Deleted in the workers below"
LARGEST = {"heads": ["Key", "Size", "Time left", "Workers"], "text": "The largest"}


def answer(**parts):
    empty = {"text": "", "failures": [], "heads": [], "rows": [], "latest": {}}
    return {"is_over": True, "workers": 1, **empty, **parts}


def found(**parts):
    heads = ["Worker", "Entry", "Time left", "Size", "Type", "Tags"]
    row = ["4242", "present", 90.5, 2048, "str", "<b>a tag</b>"]
    return answer(text="Present in 1 of 1 workers", heads=heads, rows=[row], **parts)


@pytest.fixture
def form(page, site):
    """The page of an inspector with the form open."""
    page.show(site.card(is_shared=True))
    page.find('[data-part="inspection"] summary').click()
    return page


def state(page):
    return page.text('[data-part="state"]')


def search(page, site, text, *answers):
    site.answers = [{"token": "t"}, *answers]
    page.find('[name="text"]').clear()
    page.find('[name="text"]').send_keys(text)
    page.find('[data-part="inspection"] form button').click()


def cells(page, part):
    texts = (
        "return [...document.querySelectorAll(arguments[0])].map((row) => [...row.cells].map((one) => one.textContent))"
    )
    return page.run(texts, f'[data-part="{part}"] tbody tr')


def test_without_published_figures_there_is_no_form(page, site):
    page.show(site.card(is_shared=False))
    assert not page.find('[data-part="inspection"]').is_displayed()


def test_an_inspector_who_is_no_operator_has_no_button_to_delete(page, site):
    site.granted = {Permission.INSPECT}
    page.show(site.card(is_shared=True))
    page.find('[data-part="inspection"] summary').click()
    search(page, site, "k", found())
    assert until(lambda: state(page) == "Present in 1 of 1 workers", SOON)
    assert not page.find('[data-part="delete"]').is_displayed()
    assert not page.find('[data-part="purge"]').is_displayed()


def test_a_key_is_found_and_deleted_after_a_confirmation(form, site):
    search(form, site, "k", found())
    assert until(lambda: state(form) == "Present in 1 of 1 workers", SOON)
    assert cells(form, "found") == [["4242", "present", "90.5 s", "2 KiB", "str", "<b>a tag</b>"]]
    site.answers = [
        {"token": "t"},
        answer(text=DELETED, heads=["Worker", "Deleted"], rows=[["4242", 1]]),
    ]
    assert "The key “k” will be deleted from pages, in all workers" in form.press('[data-part="delete"]', sure=False)
    assert len(site.posted) == 2
    form.press('[data-part="delete"]')
    assert until(lambda: state(form) == DELETED, SOON)
    assert not form.find('[data-part="delete"]').is_displayed()
    assert site.posted == [
        "kind=key&text=k&action=find&cache=pages",
        "token=t",
        "kind=key&text=k&action=delete&cache=pages",
        "token=t",
    ]


def test_the_progress_is_shown_and_workers_without_an_answer_are_named(form, site):
    site.answers = [{"token": "t"}, *[answer(is_over=False, text="1 of 2 workers have answered …")] * 3]
    site.answers.append(found(failures=["No answer from worker 4343"]))
    form.find('[name="text"]').send_keys("k")
    form.find('[data-part="inspection"] form button').click()
    assert until(lambda: state(form) == "1 of 2 workers have answered …", SOON)
    assert until(lambda: state(form) == "Present in 1 of 1 workers. No answer from worker 4343", SOON)
    assert form.find('[data-part="state"]').get_attribute("data-state") == "bad"


def test_a_refusal_is_shown(form, site):
    form.expected = ["400 (Bad Request)"]
    site.answers = [{"error": "Give a key"}]
    form.find('[name="text"]').send_keys("k")
    form.find('[data-part="inspection"] form button').click()
    assert until(lambda: state(form) == "That did not work: Give a key", SOON)
    assert not form.find('[data-part="delete"]').is_displayed()


def test_a_sample_shows_any_key_as_text_and_finds_it_by_a_click(form, site):
    rows = [[key, 1000, "never expires", 1] for key in (*KEYS, "session…")]
    latest = dict.fromkeys(KEYS, 2)
    looks = [[{"token": "t"}, answer(**LARGEST, rows=rows, latest=latest, workers=2)] for _ in range(5)]
    site.answers = [each for look in looks for each in look]
    form.find('[data-part="sample"]').click()
    assert until(lambda: state(form) == "The largest", SOON)
    assert [key for key, *_ in cells(form, "found")] == [*KEYS, "session…"]
    assert cells(form, "hottest") == [[key, "100%"] for key in KEYS]
    assert "the share of 10 looks" in form.text('[data-part="hottest"] caption')
    assert form.all("main img") == []
    assert form.run("return document.documentElement.scrollWidth <= innerWidth")
    buttons = form.all('[data-part="found"] tbody button')
    assert len(buttons) == len(KEYS)
    site.posted.clear()
    site.answers = [{"token": "t"}, found()]
    form.run("arguments[0].click()", buttons[1])
    assert until(lambda: state(form) == "Present in 1 of 1 workers", SOON)
    assert site.posted[0] == "kind=key&text=two%0Alines&action=find&cache=pages"
    assert not form.find('[data-part="hottest"]').is_displayed()


def test_another_search_replaces_one_that_waits(form, site):
    site.answers = [{"token": "old"}, answer(is_over=False, text="0 of 1 workers have answered …")]
    form.find('[name="text"]').send_keys("k")
    form.find('[data-part="inspection"] form button').click()
    assert until(lambda: state(form).startswith("0 of 1"), SOON)
    site.answers = [{"token": "new"}, *[found()] * 3]
    form.find('[data-part="inspection"] form button').click()
    assert until(lambda: state(form) == "Present in 1 of 1 workers", SOON)
    assert site.posted[-1] == "token=new"


def test_axe_finds_no_violation_and_a_phone_needs_no_sideways_scrolling(form, site):
    metrics = {"width": 390, "height": 780, "deviceScaleFactor": 1, "mobile": False}
    form.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)
    search(form, site, "k", found(failures=["No answer from worker 4343"]))
    assert until(lambda: "No answer" in state(form), SOON)
    assert form.run("return document.documentElement.scrollWidth") <= 390
    assert violations_in_both_themes(form.driver) == []
