"""A headless Chromium, spoken to over its DevTools protocol."""

from __future__ import annotations

import asyncio
import base64
import os
import re
import shutil
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp

PROGRAMS = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome")
PROGRAM = next((found for name in PROGRAMS if (found := shutil.which(name))), None)
PATIENCE_S = 60
FLAGS = (
    *("--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-dev-shm-usage"),
    *("--remote-debugging-port=0", "--mute-audio", "--force-color-profile=srgb"),
)


class Page:
    """One tab. What the page logs and what it can't load is kept in `log`, what
    its websocket brings in `received`."""

    def __init__(self, socket: aiohttp.ClientWebSocketResponse) -> None:
        self._socket = socket
        self._session: str | None = None
        self._last = 0
        self.log: list[str] = []
        self.received = b""

    async def call(self, method: str, **params: Any) -> dict[str, Any]:
        """One command of the protocol and its result."""
        self._last += 1
        number = self._last
        whole: dict[str, Any] = {"id": number, "method": method, "params": params}
        if self._session is not None:
            whole["sessionId"] = self._session
        await self._socket.send_json(whole)
        while True:
            answer = await asyncio.wait_for(self._socket.receive_json(), PATIENCE_S)
            if answer.get("method") == "Log.entryAdded":
                self.log.append(answer["params"]["entry"]["text"])
            elif answer.get("method") == "Runtime.exceptionThrown":
                self.log.append(str(answer["params"]["exceptionDetails"]))
            elif answer.get("method") == "Network.webSocketFrameReceived":
                frame = answer["params"]["response"]
                if frame["opcode"] == 2:  # binary
                    self.received += base64.b64decode(frame["payloadData"])
            elif answer.get("id") == number:
                assert "error" not in answer, answer
                return answer["result"]

    async def attach(self, width: int, height: int) -> None:
        """Open the tab."""
        target = await self.call("Target.createTarget", url="about:blank", width=width, height=height)
        attached = await self.call("Target.attachToTarget", targetId=target["targetId"], flatten=True)
        self._session = attached["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            await self.call(f"{domain}.enable")

    async def open(self, url: str) -> None:
        """Go to a page."""
        await self.call("Page.navigate", url=url)

    async def value(self, expression: str) -> Any:
        """What a JavaScript expression is in the page."""
        return (await self.call("Runtime.evaluate", expression=expression))["result"].get("value")

    async def press(self, key: str) -> None:
        """A printable key."""
        await self.call("Input.dispatchKeyEvent", type="keyDown", key=key, text=key)
        await self.call("Input.dispatchKeyEvent", type="keyUp", key=key)

    async def click(self, x: float, y: float) -> None:
        """A click, in pixels of the page."""
        for kind in ("mousePressed", "mouseReleased"):
            await self.call(
                "Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", buttons=1, clickCount=1
            )

    async def allow_clipboard(self) -> None:
        """As somebody does who clicks "allow"; a page reads and writes it only while it has the focus."""
        await self.call(
            "Browser.grantPermissions", permissions=["clipboardReadWrite", "clipboardSanitizedWrite"]
        )
        await self.call("Emulation.setFocusEmulationEnabled", enabled=True)

    async def clipboard(self) -> str:
        """The text on the browser's clipboard."""
        read = {"expression": "navigator.clipboard.readText()", "awaitPromise": True, "userGesture": True}
        found = await self.call("Runtime.evaluate", **read)
        assert "exceptionDetails" not in found, found
        return str(found["result"]["value"])

    async def picture(self) -> bytes:
        """The page as PNG."""
        return base64.b64decode((await self.call("Page.captureScreenshot"))["data"])


@asynccontextmanager
async def browser(folder: Path, size: tuple[int, int] = (1200, 800)) -> AsyncIterator[Page]:
    """A browser with one tab; `folder` is for its profile."""
    assert PROGRAM is not None
    words = folder / "browser.log"
    with words.open("wb") as log:
        process = await asyncio.create_subprocess_exec(
            PROGRAM,
            *FLAGS,
            f"--user-data-dir={folder / 'profile'}",
            "about:blank",
            stderr=log,
            start_new_session=True,  # a script starts it, and it starts others
        )
    try:
        address = await _address(words)
        async with aiohttp.ClientSession() as session, session.ws_connect(address, max_msg_size=0) as socket:
            page = Page(socket)
            await page.attach(*size)
            yield page
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        await process.wait()


async def _address(words: Path) -> str:
    async with asyncio.timeout(PATIENCE_S):
        while (found := re.search(r"ws://\S+", words.read_text(errors="replace"))) is None:
            await asyncio.sleep(0.05)
    return found[0]
