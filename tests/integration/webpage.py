# SPDX-License-Identifier: Apache-2.0
"""The dashboard in a real Chromium, for tests. Screenshots are kept in <build>/screenshots."""
import re

import browser as chromium
import pytest
import webscene
from daemon import wait_for
from fixture import BUILD

SCREENSHOTS = BUILD / "screenshots"
LIGHT, DARK = "rgb(244, 245, 247)", "rgb(18, 22, 27)"

# Everything with exact bytes on the page, as an object.
FIGURES = """
const number = (e) => e && e.dataset.bytes !== undefined ? Number(e.dataset.bytes) : null;
const bytes = (e) => number(e.querySelector('[data-bytes]'));
const rows = (id) => [...document.querySelectorAll(`#${id} tbody tr[data-row]`)];
const cells = (tr) => Object.fromEntries([...tr.cells].filter((td) => td.dataset.column).map(
  (td) => [td.dataset.column, td.querySelector('[data-bytes]') ? bytes(td) : td.textContent]));
const table = (id) => Object.fromEntries(rows(id).map((tr) => [tr.dataset.row, cells(tr)]));
const terms = (of) => Object.fromEntries(
  [...document.querySelectorAll('#equation tr[data-term]')].map((tr) => [tr.dataset.term, of(tr)]));
const survey = document.getElementById('survey').textContent;
return {
  used: number(document.getElementById('used')), ghosts: number(document.getElementById('ghosts')),
  survey: Number((survey.match(/^Survey ([\\d\\u202f]+)/) || ['', '0'])[1].replace(/\\D/g, '')),
  terms: terms(bytes), shown: terms((tr) => tr.querySelector('.exact').textContent),
  workers: table('workers'), holders: table('holders'), users: table('users'),
  limits: Object.fromEntries([...document.querySelectorAll('#quota [data-row]')].map((row) => [
    row.dataset.row, Object.fromEntries(
      [...row.querySelectorAll('[data-name]')].map((e) => [e.dataset.name, number(e)]))])),
  events: [...document.querySelectorAll('#events li')].map((li) => li.dataset.event),
};"""

CONTRASTS = """
const channels = (color) => color.match(/[\\d.]+/g).map(Number);
const luminance = (color) => channels(color).slice(0, 3).map((c) => c / 255)
  .map((c) => c <= .03928 ? c / 12.92 : ((c + .055) / 1.055) ** 2.4)
  .reduce((sum, c, i) => sum + c * [.2126, .7152, .0722][i], 0);
const behind = (e) => {
  for (; e; e = e.parentElement) {
    const c = getComputedStyle(e).backgroundColor, a = channels(c);
    if (a.length < 4 || a[3] > 0) return c;
  }
  return 'rgb(255,255,255)';
};
const poor = [];
for (const e of document.querySelectorAll('main *, header *, footer *, #away')) {
  if (e.closest('svg') || !e.checkVisibility() ||
    ![...e.childNodes].some((n) => n.nodeType === 3 && n.textContent.trim())) continue;
  const [x, y] = [luminance(getComputedStyle(e).color), luminance(behind(e))].sort((a, b) => b - a);
  const contrast = (x + .05) / (y + .05);
  const what = `${e.tagName}.${e.className} ${e.textContent.trim().slice(0, 20)}`;
  if (contrast < 4.5) poor.push(`${what} ${contrast.toFixed(2)}`);
}
return poor;"""


@pytest.fixture(scope="module")
def shared_browser():
    SCREENSHOTS.mkdir(exist_ok=True)
    browser = chromium.Browser()
    try:
        yield browser
    finally:
        browser.quit()


class Page:
    """The dashboard of a daemon."""

    def __init__(self, browser, daemon, width=1280, height=900, scheme="light"):
        self.browser, self.daemon = browser, daemon
        self.origin = f"http://127.0.0.1:{daemon.port}"
        browser.get("about:blank")
        browser.log("browser")
        browser.requests()
        browser.resize(width, height)
        browser.scheme(scheme)
        browser.get(f"{self.origin}/")
        self.wait("document.body.className === 'is-live' && document.querySelector('#equation tr')",
                  "the first figures")

    def run(self, expression):
        return self.browser.run(f"return {expression}")

    def wait(self, expression, what=None):
        return self.browser.wait(f"return {expression}", what=what)

    def figures(self):
        return self.browser.run(FIGURES)

    def surveyed(self):
        """Waits until the page shows a survey that began after this call."""
        sequence = webscene.settle(self.daemon)["sequence"]
        return wait_for("the page's survey", lambda: (now := self.figures())["survey"] >=
                        sequence and now)

    def screenshot(self, name):
        self.browser.screenshot(SCREENSHOTS / f"{name}.png")

    def was_late(self):
        """Whether the daemon's loop was late by more than a second since its start: it is
        unwell then, for ten seconds."""
        counts = dict(re.findall(r'^shmstored_loop_lateness_seconds_bucket\{le="([^"]+)"\} (\d+)',
                                 self.daemon.get("/metrics"), re.M))
        return int(counts["+Inf"]) > int(counts["1.0"])

    def unwell(self):
        """The browser's messages, since it was asked last, of answers 503 to /healthz;
        it may have no others."""
        messages = [m["message"] for m in self.browser.log("browser")]
        assert all("/healthz" in message and "503" in message for message in messages), messages
        return messages

    def end(self):
        """Nothing left the host, and the console is empty."""
        urls = [url for url in self.browser.requests() if not url.startswith(
            ("data:", "about:", "chrome:", "chrome-"))]
        assert urls and all(url.startswith(f"{self.origin}/") for url in urls), (
            [url for url in urls if not url.startswith(self.origin)])
        fetched = self.run("performance.getEntriesByType('resource').map((e) => e.name)")
        assert fetched and all(url.startswith(f"{self.origin}/") for url in fetched)
        messages = self.unwell()
        assert not messages or self.was_late(), messages


def look_at_part(browser, page, part):
    """In both widths and schemes: it can be read, nothing is cut off, and
    there is a picture of it."""
    for width, height in ((1280, 900), (360, 740)):
        browser.resize(width, height)
        assert page.run("document.documentElement.scrollWidth") == width, (
            "the page scrolls sideways")
        for scheme in ("light", "dark"):
            browser.scheme(scheme)
            page.wait(f"getComputedStyle(document.body).backgroundColor === "
                      f"'{LIGHT if scheme == 'light' else DARK}'", scheme)
            assert browser.run(CONTRASTS) == [], (width, scheme)
            browser.run(f"document.getElementById('{part}-part').scrollIntoView()")
            page.screenshot(f"dashboard-{part}-{width}-{scheme}")
