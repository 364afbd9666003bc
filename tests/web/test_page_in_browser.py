"""The page in a browser, over a job whose records are written as time passes: live numbers, text as text, a dead job, tokens.

``TIDEMARK_PICTURES=docs/pictures scripts/run pytest tests/web/test_page_in_browser.py`` takes the picture of the docs again.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.control.worlds import World
from tests.dagster.browser import Page, open_browser, require_chromium
from tests.dagster.web_server import wait_for
from tests.web.page_server import Asked, serving
from tests.web.recorded_job import HOSTILE, RecordedJob
from tidemark.clock import SYSTEM_CLOCK
from tidemark.web.access.tokens import FixedTokens, Tokens, new_token

pytestmark = [pytest.mark.slow, pytest.mark.browser]

PAGE = "/api/v1/jobs/fares/page"
MOST_BYTES = 150_000
WATCH = """
window.broken = [];
addEventListener("error", (event) => broken.push(`error: ${event.message}`));
addEventListener("unhandledrejection", (event) => broken.push(`rejection: ${event.reason}`));
document.addEventListener("securitypolicyviolation", (event) => broken.push(`policy: ${event.violatedDirective} ${event.blockedURI}`));
"""


UNNAMED = """
[...document.querySelectorAll("button, [role=region], [role=img], [role=button], meter, input")]
  .filter((each) => !(each.getAttribute("aria-label") || each.textContent.trim())).length
"""
HIDE = """
Object.defineProperty(document, "hidden", { get: () => STATE, configurable: true });
document.dispatchEvent(new Event("visibilitychange"));
"""
ENTER = """
document.getElementById("token").value = "TEXT";
document.querySelector("form").requestSubmit();
"""
LAYOUT = """
(async () => {
  const { place, BOX } = await import("./static/layout.js");
  const nodes = Array.from({ length: 50 }, (_, n) => ({ id: `n${n}`, role: n < 4 ? "source" : "operator" }));
  const edges = nodes.slice(4).flatMap((node, n) =>
    [n % 7, (n % 3) + 1].map((back) => ({ start: `n${Math.max(0, n + 3 - back)}`, end: node.id, tag: "" })),
  );
  const placed = place(nodes, edges, (node) => 60 + (Number(node.id.slice(1)) % 4) * 16);
  const boxes = [...placed.boxes.values()];
  const apart = (a, b) => a.x >= b.x + b.width || b.x >= a.x + a.width || a.y >= b.y + b.height || b.y >= a.y + a.height;
  return {
    boxes: boxes.length,
    over: boxes.flatMap((a, at) => boxes.slice(at + 1).filter((b) => !apart(a, b))).length,
    backwards: edges.filter((edge) => placed.boxes.get(edge.start).x >= placed.boxes.get(edge.end).x).length,
    wires: placed.wires.length,
    least: Math.min(...boxes.map((box) => box.y)),
    fits: boxes.every((box) => box.y + box.height <= placed.height && box.x + BOX.width <= placed.width),
  };
})()
"""
"""Places 50 operators: how many boxes are upon one another, how many edges lead backwards."""


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Page]:
    with open_browser(require_chromium(), tmp_path_factory.mktemp("profile")) as opened:
        opened.command("Page.addScriptToEvaluateOnNewDocument", source=WATCH)
        opened.command("Emulation.setDeviceMetricsOverride", width=1280, height=1000, deviceScaleFactor=1, mobile=False)
        yield opened


@pytest.fixture
def job() -> RecordedJob:
    found = RecordedJob(World())
    found.commit(40)
    return found


@contextmanager
def opened(page: Page, job: RecordedJob, asked: Asked | None = None, tokens: Tokens | None = None) -> Iterator[str]:
    """Serve a job's page; gives its address, and checks in the end that the browser had no complaint."""
    with serving(job, asked, tokens) as url:
        yield url
        assert page.evaluate("broken") == []
        page.open("about:blank")


def text_of(page: Page, selector: str) -> str:
    return str(page.evaluate(f"document.querySelector({selector!r})?.textContent ?? ''"))


def tile(page: Page, name: str) -> str:
    return text_of(page, f"#tile-{name}")


def press(page: Page, key: str, text: str = "") -> None:
    """Press a key and let it go, as a keyboard does."""
    code = {"Enter": 13, "Tab": 9, " ": 32}[key]
    page.command("Input.dispatchKeyEvent", type="keyDown", key=key, windowsVirtualKeyCode=code, text=text)
    page.command("Input.dispatchKeyEvent", type="keyUp", key=key, windowsVirtualKeyCode=code)


def test_numbers_change_while_one_looks(page: Page, job: RecordedJob) -> None:
    asked = Asked()
    with opened(page, job, asked) as url:
        page.open(f"{url}#fares")
        page.wait_for_text("Watermarks by split", "fares-2", "holds it", "idle", "side output late_fares")
        assert (tile(page, "epoch"), tile(page, "late")) == ("39", "120")
        wait_for("an unchanged answer", lambda: True if asked.count(PAGE, 304) else None, seconds=20)
        job.commit(1, late=1_000)
        wait_for("the next epoch", lambda: True if tile(page, "epoch") == "40" else None, seconds=20)
        assert tile(page, "late") == "1,120"
        assert "1,057 late" in page.text(), "the operator's box has the newest 20 epochs"
        assert page.evaluate("document.querySelectorAll('.graph .box').length") == 11
        assert page.evaluate("document.querySelectorAll('.graph .wire').length") == 9
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), "it fits 1280 pixels"


def test_texts_are_shown_as_text(page: Page, job: RecordedJob) -> None:
    job.fail(f"the topic {HOSTILE} is gone")
    with opened(page, job) as url:
        page.open(url)
        page.wait_for_text("fares", "failed")
        page.evaluate("document.querySelector('a[href=\"#fares\"]').click()")
        page.wait_for_text(f"Fares and rides of the city {HOSTILE}", f"the topic {HOSTILE} is gone")
        for node, shown in (("n3", "zone <> '<img src=x onerror="), ("o1", f"Fares by zone and hour {HOSTILE}")):
            page.evaluate(f"document.querySelector('[data-key=\"box {node}\"]').dispatchEvent(new MouseEvent('click'))")
            page.wait_for_text(shown, "newest epochs")
        assert page.evaluate("document.images.length") == 0
        assert page.evaluate("document.title") == "fares: failed \N{EN DASH} Tidemark"


def test_the_keyboard_reaches_the_boxes_and_keeps_its_place(page: Page, job: RecordedJob) -> None:
    with opened(page, job) as url:
        page.open(f"{url}#fares")
        page.wait_for_text("Watermarks by split", "held by split fares-0")
        page.evaluate("document.querySelector('[data-key=\"scroll graph\"]').focus()")
        press(page, "Tab")
        assert page.evaluate("document.activeElement.getAttribute('aria-label')").startswith("source fares: reads")
        press(page, "Enter", "\r")
        page.wait_for_text("event time value.at, at most 30s out of order")
        assert page.evaluate("document.activeElement.getAttribute('data-key')") == "box n1", "although it was drawn again"
        job.commit(1)
        wait_for("the next epoch", lambda: True if tile(page, "epoch") == "40" else None, seconds=20)
        assert page.evaluate("document.activeElement.getAttribute('data-key')") == "box n1"
        assert page.evaluate("document.activeElement.getAttribute('aria-pressed')") == "true"
        assert page.evaluate(UNNAMED) == 0


def test_a_dead_job_is_red(page: Page, job: RecordedJob) -> None:
    job.end()
    with opened(page, job) as url:
        page.open(f"{url}#fares")
        page.wait_for_text("dead", "to do", "tidemark supervise")
        assert page.evaluate("document.getElementById('state').dataset.tone") == "bad"
        red = page.evaluate("getComputedStyle(document.getElementById('state')).backgroundColor")
        assert red == "rgb(192, 38, 38)"
        page.command("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": "dark"}])
        try:
            assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(17, 24, 30)"
            assert page.evaluate("getComputedStyle(document.getElementById('state')).backgroundColor") == "rgb(255, 123, 114)"
        finally:
            page.command("Emulation.setEmulatedMedia", features=[])


def test_the_page_asks_for_a_token_and_keeps_it_for_the_tab(page: Page, job: RecordedJob) -> None:
    token, secret = new_token("anna", "viewer", "fares")
    with opened(page, job, tokens=FixedTokens((token,))) as url:
        page.open(f"{url}#fares")
        page.wait_for_text("A token is needed")
        assert not page.evaluate("document.getElementById('token-wrong').checkVisibility()")
        page.evaluate(ENTER.replace("TEXT", "wrong-token"))
        page.wait_for_text("does not know this token")
        page.evaluate(ENTER.replace("TEXT", secret))
        page.wait_for_text("Watermarks by split", "Forget token")
        assert page.evaluate("[localStorage.length, sessionStorage.length, document.cookie]") == [0, 1, ""]
        assert secret not in page.evaluate("location.href")
        page.open("about:blank")
        page.open(f"{url}#fares")
        page.wait_for_text("Watermarks by split")
        page.evaluate("document.getElementById('sign-out').click()")
        page.wait_for_text("A token is needed")
        assert page.evaluate("sessionStorage.length") == 0


def test_a_hidden_page_asks_nothing(page: Page, job: RecordedJob) -> None:
    asked = Asked()
    with opened(page, job, asked) as url:
        page.open(f"{url}#fares")
        page.wait_for_text("Watermarks by split", "live")
        page.evaluate(HIDE.replace("STATE", "true"))
        page.wait_for_text("paused")
        SYSTEM_CLOCK.sleep(0.5)
        before = len(asked.answers)
        SYSTEM_CLOCK.sleep(5)
        assert len(asked.answers) == before
        page.evaluate(HIDE.replace("STATE", "false"))
        page.wait_for_text("live")
        assert len(asked.answers) == before + 1, "at once"


def test_an_unknown_job_and_a_server_that_has_ended(page: Page, job: RecordedJob) -> None:
    with opened(page, job) as url:
        page.open(f"{url}#nothing")
        page.wait_for_text("No such job", "no job 'nothing'")
        page.evaluate("location.hash = '#fares'")
        page.wait_for_text("Watermarks by split")
    with serving(job) as url:
        page.open(f"{url}#fares")
        page.wait_for_text("Watermarks by split", "live")
    page.wait_for_text("the server does not answer", "Watermarks by split", seconds=30)
    page.open("about:blank")


def test_a_job_of_fifty_operators_is_drawn(page: Page) -> None:
    """In layers, without boxes upon one another."""
    job = RecordedJob(World())
    with opened(page, job) as url:
        page.open(url)
        page.wait_for_text("fares", "running")
        assert page.evaluate(LAYOUT) == {"boxes": 50, "over": 0, "backwards": 0, "wires": 92, "least": 0, "fits": True}


def test_the_picture_of_the_docs(page: Page, tmp_path: Path) -> None:
    job = RecordedJob(World(), remark="of New York")
    job.commit(70, late=4)
    folder = Path(os.environ.get("TIDEMARK_PICTURES", str(tmp_path)))
    page.command("Emulation.setDeviceMetricsOverride", width=1280, height=1180, deviceScaleFactor=1, mobile=False)
    with opened(page, job) as url:
        page.open(f"{url}#fares")
        page.wait_for_text("Watermarks by split", "held by split fares-0", "time in epochs")
        # The whole page: no panel is cut.
        height = page.evaluate("document.documentElement.scrollHeight")
        page.command("Emulation.setDeviceMetricsOverride", width=1280, height=height, deviceScaleFactor=1, mobile=False)
        page.screenshot(folder / "job-page.png")
        assert 5_000 < (folder / "job-page.png").stat().st_size < MOST_BYTES
