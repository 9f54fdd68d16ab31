"""Chromium without a screen, as a user has it before the dashboard."""

import contextlib
import importlib.resources
import os
import pathlib
import re
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

from selenium import webdriver
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.remote.webelement import WebElement
from selenium.webdriver.support import expected_conditions
from selenium.webdriver.support.wait import WebDriverWait

from testbed.fixtures.conditions import PATIENCE
from tests.interop.dashboard.identity import PASSWORD

CHROMIUM = pathlib.Path("/usr/bin/chromium")
"""Debian's. It is named, as Selenium would fetch one of its own otherwise."""
DRIVER = pathlib.Path("/usr/bin/chromedriver")
WAIT_SECONDS = 15.0 * PATIENCE
TABS_MAX = 250
"""Presses of the tabulator key after which what was looked for is not within reach."""
OPTIONS = (
    "--headless=new",
    "--no-sandbox",  # as root there is none
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-quic",
    "--no-proxy-server",
    "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1",
    "--window-size=1400,1000",
    "--force-prefers-reduced-motion",
    "--lang=en",
)
AXE_RUN = """
var done = arguments[arguments.length - 1];
axe.run({include: [arguments[0]], exclude: arguments[1]}, {resultTypes: ['violations']}).then(
  function (found) { done(found.violations); }, function (error) { done(String(error)); });
"""
OWN_PART = ".acstor"
"""The plug-in's part of a page."""
DIALOG = "#modal_wrapper .modal.in"
WIDGETS_OF_HORIZON = (
    ".themable-select",
    ".themable-spinner",
    ".table_search",
    ".dropdown-toggle",
    ".modal-header",
)
"""Horizon's templates in the plug-in's part: it does not name them to readers of screens."""
THEMED = re.compile(r'^<a |class="[^"]*\bbtn\b')
"""Links and buttons, whose colours are a theme's alone: Horizon's own has 3.6 of 4.5."""
MIGRATION = '"JQMIGRATE: '
"""Begin of the warnings of jQuery Migrate, which Horizon has for its own scripts."""

Found = TypeVar("Found")


@contextlib.contextmanager
def opened(folder: pathlib.Path) -> Iterator[webdriver.Chrome]:
    """Start a browser, and yield it."""
    options = webdriver.ChromeOptions()
    options.binary_location = str(CHROMIUM)
    for option in (*OPTIONS, f"--user-data-dir={folder / 'profile'}"):
        options.add_argument(option)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    # On Linux the language is the environment's, and Horizon has pages in many.
    environment = {**os.environ, "LANGUAGE": "en", "LC_ALL": "C.UTF-8"}
    log = str(folder / "chromedriver.log")
    service = Service(str(DRIVER), log_output=log, env=environment)
    driver = webdriver.Chrome(options=options, service=service)
    try:
        driver.set_page_load_timeout(WAIT_SECONDS)
        driver.set_script_timeout(WAIT_SECONDS)
        yield driver
    finally:
        driver.quit()


class Browser:
    """A user at the dashboard.

    :ivar driver: the browser.
    :ivar url: where Horizon is.
    """

    def __init__(self, driver: webdriver.Chrome, url: str) -> None:
        self.driver = driver
        self.url = url
        self._axe = importlib.resources.files("axe_core_python").joinpath("axe.min.js").read_text()

    def forget(self) -> None:
        """Forget who was logged in, and what the console said."""
        self.driver.get("about:blank")
        self.driver.execute_cdp_cmd("Network.clearBrowserCookies", {})
        self.take_console()

    def sign_in(self, path: str, theme: str = "default") -> None:
        """Log in with the password, and come to a page."""
        self.driver.get(f"{self.url}/auth/login/?next={path}")
        self.driver.add_cookie({"name": "theme", "value": theme, "path": "/"})
        self.find("#id_username").send_keys("alice")
        self.find("#id_password").send_keys(PASSWORD, Keys.ENTER)
        self.until(lambda: self.driver.current_url == f"{self.url}{path}", f"logged in to {path}")
        ready = "return document.readyState;"
        self.until(lambda: self.driver.execute_script(ready) == "complete", f"{path} is loaded")

    def open(self, path: str) -> None:
        """Go to a page."""
        self.driver.get(f"{self.url}{path}")

    def find(self, selector: str) -> WebElement:
        """Return an element when it is shown."""
        wanted = expected_conditions.visibility_of_element_located((By.CSS_SELECTOR, selector))
        return self._wait().until(wanted, selector)

    def text(self, selector: str = OWN_PART) -> str:
        """Return the text of a part, as it is shown."""
        return str(self.find(selector).text)

    def until(self, condition: Callable[[], Found], what: str) -> Found:
        """Wait for a condition, and return what it has returned."""
        return self._wait().until(lambda _driver: condition(), what)

    def until_text(self, wanted: str, selector: str = OWN_PART) -> None:
        """Wait for a text in a part, also when that is put in another's place meanwhile."""
        script = "var it = document.querySelector(arguments[0]); return it ? it.innerText : '';"
        self.until(
            lambda: wanted in self.driver.execute_script(script, selector),
            f"{wanted!r} in {selector} of {self.driver.current_url}",
        )

    def _wait(self) -> "WebDriverWait[webdriver.Chrome]":
        return WebDriverWait(self.driver, WAIT_SECONDS, poll_frequency=0.05)

    def take_console(self) -> list[str]:
        """Return the console's errors since the last time; refusals of the policy are some."""
        return [
            f"{entry['level']}: {entry['message']}"
            for entry in self.driver.get_log("browser")  # type: ignore[no-untyped-call]
            if entry["level"] in ("SEVERE", "WARNING") and MIGRATION not in entry["message"]
        ]

    def accessibility(self, part: str = OWN_PART) -> list[str]:
        """Return violations that axe-core finds in a part of the page, a line for each element."""
        self.driver.execute_script(self._axe)
        excluded = [[each] for each in WIDGETS_OF_HORIZON if self.has(f"{part} {each}")]
        found = self.driver.execute_async_script(AXE_RUN, [part], excluded)
        assert isinstance(found, list), found
        return [
            f"{rule['id']}: {node['html'][:300]} {node['failureSummary']}"
            for rule in found
            for node in rule["nodes"]
            if rule["id"] != "color-contrast" or not THEMED.search(node["html"])
        ]

    def has(self, selector: str) -> bool:
        """Return whether there is an element."""
        return bool(self.driver.find_elements(By.CSS_SELECTOR, selector))

    def press(self, *keys: str) -> None:
        """Press keys, where the focus is."""
        webdriver.ActionChains(self.driver).send_keys(*keys).perform()

    def tab_to(self, text: str, within: str = "body") -> WebElement:
        """Move the focus by the tabulator key to what has a text or label, inside a part."""
        script = (
            "var it = document.activeElement, part = it && it.closest(arguments[0]);"
            "if (!part || !it.matches('a, button, input, select, textarea')) { return ''; }"
            "var label = it.id && document.querySelector('label[for=\"' + it.id + '\"]');"
            "return [it.innerText, it.value, it.title, it.getAttribute('aria-label'),"
            "        label && label.innerText].join('\\n');"
        )
        for _ in range(TABS_MAX):
            words: Any = self.driver.execute_script(script, within)
            if text in str(words).split("\n"):
                return self.driver.switch_to.active_element
            self.press(Keys.TAB)
        raise AssertionError(f"the keyboard does not reach {text!r} in {within}")

    @contextlib.contextmanager
    def without_scripts(self) -> Iterator[None]:
        """Have pages run no scripts."""
        command = "Emulation.setScriptExecutionDisabled"
        self.driver.execute_cdp_cmd(command, {"value": True})
        try:
            yield
        finally:
            self.driver.execute_cdp_cmd(command, {"value": False})
