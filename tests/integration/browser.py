# SPDX-License-Identifier: Apache-2.0
"""A headless Chromium under chromedriver, spoken to in plain WebDriver over HTTP: as much of it
as the page's tests want."""
import base64
import json
import os
import select
import shutil
import signal
import subprocess
import tempfile
import time
import urllib.error
import urllib.request

CHROMIUM = (shutil.which("chromium") or shutil.which("chromium-browser") or
            shutil.which("google-chrome"))
DRIVER = shutil.which("chromedriver")
MISSING = (None if CHROMIUM and DRIVER else "chromium and chromedriver are not installed (Debian: "
                                            "chromium, chromium-driver)")
FLAGS = ["--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage",
         "--disable-quic", "--no-first-run", "--disable-background-networking",
         "--disable-component-update", "--disable-sync", "--disable-default-apps",
         "--disable-extensions", "--no-proxy-server", "--hide-scrollbars",
         "--force-color-profile=srgb", "--lang=en-US"]


class BrowserError(Exception):
    """A command that the driver refused."""


class Browser:
    def __init__(self, width=1280, height=900):
        self.profile = tempfile.mkdtemp(prefix="shmstore-browser-")
        # chromedriver's own messages and the browser's go nowhere; its first lines
        # name the port that it chose.
        self.driver = subprocess.Popen([DRIVER, "--port=0", "--log-level=WARNING"],
                                       stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
                                       start_new_session=True,
                                       env={**os.environ, "HOME": self.profile,
                                            "XDG_CONFIG_HOME": self.profile,
                                            "XDG_CACHE_HOME": self.profile})
        self.session = None
        try:
            self.base = f"http://127.0.0.1:{self.port()}"
            options = {"binary": CHROMIUM, "args": [*FLAGS, f"--user-data-dir={self.profile}/data",
                                                    f"--window-size={width},{height}"]}
            always = {"browserName": "chrome", "goog:chromeOptions": options,
                      "goog:loggingPrefs": {"browser": "ALL", "performance": "ALL"}}
            self.session = self.call("POST", "/session",
                                     {"capabilities": {"alwaysMatch": always}})["sessionId"]
            self.resize(width, height)
        except BaseException:
            self.quit()
            raise

    def port(self):
        deadline = time.monotonic() + 60
        text = b""
        while b"successfully on port " not in text or not text.endswith(b"\n"):
            ready, _, _ = select.select([self.driver.stdout], [], [],
                                        max(0.0, deadline - time.monotonic()))
            data = os.read(self.driver.stdout.fileno(), 4096) if ready else b""
            assert data, f"chromedriver did not start: {text!r}"
            text += data
        return int(text.split(b"successfully on port ")[1].split(b".")[0])

    def call(self, method, path, body=None):
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self.base + path, data,
                                         {"Content-Type": "application/json"}, method=method)
        try:
            with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(
                    request, timeout=120) as answer:
                return json.load(answer)["value"]
        except urllib.error.HTTPError as error:
            raise BrowserError(error.read().decode(errors="replace")) from None

    def ask(self, method, path, body=None):
        return self.call(method, f"/session/{self.session}{path}", body)

    def get(self, url):
        self.ask("POST", "/url", {"url": url})

    def run(self, script, *arguments):
        """The value of a JavaScript function body."""
        return self.ask("POST", "/execute/sync", {"script": script, "args": list(arguments)})

    def cdp(self, command, **parameters):
        return self.ask("POST", "/goog/cdp/execute", {"cmd": command, "params": parameters})

    def log(self, kind):
        """Entries logged since this was asked for last: "browser" (the console) or
        "performance" (CDP's events)."""
        return self.ask("POST", "/se/log", {"type": kind})

    def requests(self):
        """URLs that the page asked for, since this was asked for last."""
        events = [json.loads(entry["message"])["message"] for entry in self.log("performance")]
        return [event["params"]["request"]["url"] for event in events
                if event["method"] == "Network.requestWillBeSent"]

    def resize(self, width, height):
        self.cdp("Emulation.setDeviceMetricsOverride", width=width, height=height,
                 deviceScaleFactor=1, mobile=False)

    def scheme(self, scheme):
        self.cdp("Emulation.setEmulatedMedia", media="",
                 features=[{"name": "prefers-color-scheme", "value": scheme}])

    def screenshot(self, path, full=True):
        """The whole page, not only what the window shows."""
        options = {"format": "png", "captureBeyondViewport": full}
        if full:
            size = self.cdp("Page.getLayoutMetrics")["cssContentSize"]
            options["clip"] = {"x": 0, "y": 0, "width": size["width"], "height": size["height"],
                               "scale": 1}
        with open(path, "wb") as file:
            file.write(base64.b64decode(self.cdp("Page.captureScreenshot", **options)["data"]))

    def wait(self, script, *arguments, timeout=120, what=None):
        """Asks until the script's value is true; it is returned."""
        deadline = time.monotonic() + timeout
        while True:
            value = self.run(script, *arguments)
            if value:
                return value
            assert time.monotonic() < deadline, f"not within {timeout} s: {what or script}"
            time.sleep(0.05)  # between questions

    def quit(self):
        if self.session:
            try:
                self.ask("DELETE", "")
            except (OSError, BrowserError):
                pass
        # The driver leads a session of its own: what is left of the browser is in its group.
        try:
            os.killpg(self.driver.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        self.driver.wait()
        self.driver.stdout.close()
        shutil.rmtree(self.profile, ignore_errors=True)
