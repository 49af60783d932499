"""A page in headless Chromium, over the pipe that it offers: no package and no port is needed.

Commands and events are those of the DevTools protocol, https://chromedevtools.github.io, each a
JSON object that ends in a zero byte: the browser reads descriptor 3 and writes descriptor 4.
"""

from __future__ import annotations

import itertools
import json
import os
import selectors
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

NAMES = ("chromium", "chromium-browser", "google-chrome")
SECONDS = 30.0  # that any answer may take: the machine may be busy

OPTIONS = (
    "--headless",
    "--no-sandbox",  # CI runs as root
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
    "--no-default-browser-check",
    "--window-size=1280,900",
    # Whatever the page asks of another host fails at once, wherever this runs.
    "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1",
    "--remote-debugging-pipe",
    "about:blank",
)

# What the browser answers to a command that meets a page which is just being left for another.
LEAVING = (
    "Inspected target navigated or closed",
    "Execution context was destroyed.",
    "Cannot find default execution context",
)


class LeavingError(RuntimeError):
    """A page was asked while it was being left for another."""


def executable() -> str | None:
    """Return the browser that is installed; None where there is none."""
    return next(filter(None, map(shutil.which, NAMES)), None)


class Page:
    """One tab, what it asked the network for and what went wrong in it.

    Attributes
    ----------
    requests : list of str
        Addresses, of every request.
    problems : list of str
        Exceptions, errors and warnings that it told, requests that failed.
    """

    def __init__(self, to_browser: int, from_browser: int) -> None:
        self._to, self._from = to_browser, from_browser
        self._selector = selectors.DefaultSelector()
        self._selector.register(from_browser, selectors.EVENT_READ)
        self._numbers, self._session, self._rest = itertools.count(1), "", b""
        self._answers: dict[int, Any] = {}
        self.requests: list[str] = []
        self.problems: list[str] = []
        target = self.ask("Target.createTarget", url="about:blank")["targetId"]
        attached = self.ask("Target.attachToTarget", targetId=target, flatten=True)
        self._session = attached["sessionId"]
        for domain in ("Page", "Network", "Runtime", "Log"):
            self.ask(f"{domain}.enable")

    def ask(self, method: str, **parameters: Any) -> Any:
        """Send a command and return its result."""
        number = next(self._numbers)
        command = {"id": number, "method": method, "params": parameters}
        if self._session:
            command["sessionId"] = self._session
        os.write(self._to, json.dumps(command).encode() + b"\0")
        end = time.monotonic() + SECONDS
        while number not in self._answers:
            self._receive(end)
        answer = self._answers.pop(number)
        if "error" in answer:
            said = answer["error"]["message"]
            raise (LeavingError if said in LEAVING else RuntimeError)(f"{method}: {said}")
        return answer["result"]

    def _receive(self, end: float) -> None:
        """Read what the browser has written."""
        if not self._selector.select(max(0.0, end - time.monotonic())):
            raise TimeoutError(f"the browser has not answered for {SECONDS} seconds")
        part = os.read(self._from, 1 << 20)
        if not part:
            raise RuntimeError("the browser has ended")
        *messages, self._rest = (self._rest + part).split(b"\0")
        for message in map(json.loads, messages):
            if "id" in message:
                self._answers[message["id"]] = message
            else:
                self._hear(message["method"], message["params"])

    def _hear(self, event: str, told: Any) -> None:
        if event == "Network.requestWillBeSent":
            self.requests.append(told["request"]["url"])
        elif event == "Network.loadingFailed" and not told.get("canceled"):
            self.problems.append(f"a request failed: {told['errorText']}")
        elif event == "Runtime.exceptionThrown":
            self.problems.append(str(told["exceptionDetails"]))
        elif event == "Runtime.consoleAPICalled" and told["type"] in ("error", "warning"):
            self.problems.append(str([a.get("value") for a in told["args"]]))
        elif event == "Log.entryAdded" and told["entry"]["level"] in ("error", "warning"):
            self.problems.append(f"{told['entry']['text']} {told['entry'].get('url', '')}")

    def open(self, address: str) -> None:
        """Go to an address."""
        found = self.ask("Page.navigate", url=address)
        if "errorText" in found:
            raise RuntimeError(f"{address}: {found['errorText']}")

    def value(self, expression: str) -> Any:
        """Return what a JavaScript expression is on the page."""
        found = self.ask("Runtime.evaluate", expression=expression, returnByValue=True)
        if "exceptionDetails" in found:
            raise RuntimeError(f"{expression}: {found['exceptionDetails']}")
        return found["result"].get("value")

    def wait_for(self, expression: str) -> Any:
        """Return what an expression is as soon as that is true, on this page or the next."""
        end = time.monotonic() + SECONDS
        while time.monotonic() < end:
            with suppress(LeavingError):  # the next turn asks the page that comes
                found = self.value(expression)
                if found:
                    return found
            time.sleep(0.05)
        raise TimeoutError(f"not true for {SECONDS} seconds: {expression}; {self.problems}")


@contextmanager
def page(browser: str, profile: Path) -> Iterator[Page]:
    """Give a page of a browser of its own, which ends with the block."""
    read_by_browser, to_browser = os.pipe()
    from_browser, written_by_browser = os.pipe()
    # A shell puts them on the descriptors that the browser looks at.
    script = f'exec "$@" 3<&{read_by_browser} 4>&{written_by_browser}'
    process = subprocess.Popen(
        ["bash", "-c", script, "bash", browser, f"--user-data-dir={profile}", *OPTIONS],
        pass_fds=(read_by_browser, written_by_browser),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    os.close(read_by_browser)
    os.close(written_by_browser)
    try:
        yield Page(to_browser, from_browser)
    finally:
        process.terminate()
        process.wait(timeout=SECONDS)
        os.close(to_browser)
        os.close(from_browser)
