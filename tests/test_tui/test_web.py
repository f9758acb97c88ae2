"""`warpdeck web` for real: its process, HTTP and WebSocket requests, and headless Chromium."""

from __future__ import annotations

import asyncio
import re
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import aiohttp
import browser
import pytest
from test_tui.conftest import run_events, write_session
from yarl import URL

from warpdeck.cli.app import run
from warpdeck.tui.serving import Gate, is_loopback

PATIENCE_S = 60
NO_BROWSER = "no Chromium here (Debian: chromium-headless-shell)"
# Pixels of text that the page's terminal has painted in its right third.
INK = """(layer => {
    if (!layer?.width || getComputedStyle(layer.closest(".textual-terminal")).opacity < 1) return 0;
    const data = layer.getContext("2d").getImageData(0, 0, layer.width, layer.height).data;
    let count = 0;
    for (let i = 3; i < data.length; i += 4)
        count += data[i] > 0 && (i >> 2) % layer.width > 0.67 * layer.width;
    return count;
})(document.querySelector(".xterm-text-layer"))"""


class Served:
    """A running server. `url` has the token, `base` has not."""

    def __init__(self, process: subprocess.Popen[str], url: str) -> None:
        self.process = process
        self.url = URL(url)
        self.base = self.url.origin()
        self.origin = str(self.base).rstrip("/")

    @property
    def tabs(self) -> list[int]:
        """Processes of tabs."""
        found = subprocess.run(
            ["pgrep", "-P", str(self.process.pid)], capture_output=True, text=True, check=False
        )
        return [int(pid) for pid in found.stdout.split()]


@asynccontextmanager
async def serving(*options: str) -> AsyncIterator[Served]:
    command = [sys.executable, "-m", "warpdeck", "web", "--port", "0", *options]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert process.stdout is not None and process.stderr is not None
    try:
        url = await asyncio.wait_for(asyncio.to_thread(process.stdout.readline), PATIENCE_S)
        assert url.startswith("http://"), process.stderr.read()
        yield Served(process, url.strip())
    finally:
        if process.poll() is None:
            process.kill()
        process.communicate()


@pytest.fixture
async def client() -> AsyncIterator[aiohttp.ClientSession]:
    async with aiohttp.ClientSession(cookie_jar=aiohttp.CookieJar(unsafe=True)) as session:
        yield session


class Tab:
    """The terminal's side of a websocket: what the dashboard wrote."""

    def __init__(self, socket: aiohttp.ClientWebSocketResponse) -> None:
        self.socket = socket
        self.written = ""

    async def until(self, seen: str | Callable[[str], bool]) -> str:
        test = seen if callable(seen) else lambda text: seen in text
        try:
            async with asyncio.timeout(PATIENCE_S):
                while not test(self.text):
                    message = await self.socket.receive()
                    assert message.type is aiohttp.WSMsgType.BINARY, (message, self.text[-500:])
                    self.written += message.data.decode(errors="replace")
        except TimeoutError:
            pytest.fail(f"never saw {seen}, but {self.text[-2000:]!r}")
        return self.text

    async def answer(self) -> object:
        """The next message that isn't the dashboard's output."""
        async with asyncio.timeout(PATIENCE_S):
            while (message := await self.socket.receive()).type is aiohttp.WSMsgType.BINARY:
                self.written += message.data.decode(errors="replace")
        return message.json()

    @property
    def text(self) -> str:
        """Without escape sequences."""
        return re.sub(r"\x1b\[[0-9;?]*[ -/]*[@-~]", "", self.written)

    async def key(self, text: str) -> None:
        self.written = ""
        await self.socket.send_json(["stdin", text])

    async def end(self) -> None:
        """Until the server closes it."""
        async with asyncio.timeout(PATIENCE_S):
            async for _ in self.socket:
                pass


@asynccontextmanager
async def tab(
    server: Served, client: aiohttp.ClientSession, size: tuple[int, int] = (100, 30)
) -> AsyncIterator[Tab]:
    await client.get(server.url)
    url = server.base.with_path("/ws").with_query(width=size[0], height=size[1])
    async with client.ws_connect(url, headers={"Origin": server.origin}) as socket:
        yield Tab(socket)


async def gone(process: int) -> None:
    """Until a process has ended."""
    async with asyncio.timeout(PATIENCE_S):
        while Path(f"/proc/{process}").exists():
            await asyncio.sleep(0.02)


async def test_nothing_is_served_without_the_token(client: aiohttp.ClientSession) -> None:
    async with serving() as server:
        base = server.base
        for path in ("/", "/?token=", "/?token=wrong", "/static/js/textual.js", "/ws", "/download/x", "/nix"):
            async with client.get(URL(server.origin + path)) as answer:
                assert answer.status == 403, path
                assert server.url.query["token"] not in await answer.text()
        with pytest.raises(aiohttp.WSServerHandshakeError) as refused:
            await client.ws_connect(base.with_path("/ws"), headers={"Origin": server.origin})
        assert refused.value.status == 403
        # The token is exchanged for a cookie that scripts and other sites don't get.
        async with client.get(server.url, allow_redirects=False) as answer:
            assert answer.status == 303 and answer.headers["Location"] == "/"
            cookie = answer.headers["Set-Cookie"]
            assert "HttpOnly" in cookie and "SameSite=Strict" in cookie
            assert server.url.query["token"] not in cookie
        async with client.get(base) as answer:
            assert answer.status == 200
            assert "default-src 'self'" in answer.headers["Content-Security-Policy"]
            assert answer.headers["Cache-Control"] == "no-store"
            page = await answer.text()
            assert f"ws://{base.host}:{base.port}/ws" in page
        async with client.get(base.with_path("/static/js/textual.js")) as answer:
            assert answer.status == 200
        # A page of another site can neither get there under its own name nor open the websocket.
        for header in ("evil.example", f"evil.example:{base.port}", f"127.0.0.1:{(base.port or 0) + 1}"):
            async with client.get(base, headers={"Host": header}) as answer:
                assert answer.status == 403, header
        for origin in ("http://evil.example", f"http://localhost:{base.port}", "null", ""):
            with pytest.raises(aiohttp.WSServerHandshakeError) as refused:
                await client.ws_connect(base.with_path("/ws"), headers={"Origin": origin})
            assert refused.value.status == 403, origin
        assert server.tabs == []
        server.process.send_signal(signal.SIGINT)
        out, err = await asyncio.to_thread(server.process.communicate, None, PATIENCE_S)
        assert server.url.query["token"] not in out + err and "Traceback" not in err


async def test_a_tab_is_a_dashboard_of_its_own(isolated_home: Path, client: aiohttp.ClientSession) -> None:
    write_session(isolated_home / "sessions", run_events(20, end=True), "softmax-random-1")
    async with serving("--readonly", "--theme", "light") as server:
        async with tab(server, client) as first:
            await first.until("1 session, 0 running")
            await first.until("READ ONLY")
            (process,) = server.tabs
            await first.key("?")
            await first.until("(refused: read only)")
            await first.key("\x1b")
            await first.socket.send_json(["resize", {"width": 80, "height": 24}])
            await first.socket.send_str("no JSON")
            await first.socket.send_json({"not": "a list"})
            await first.socket.send_json(["stdin", 7])
            await first.socket.send_json(["resize", {"width": "x"}])
            await first.socket.send_json(["ping", "5"])
            assert await first.answer() == ["pong", "5"]
            async with tab(server, client) as second:
                await second.until("1 session, 0 running")
                assert len(server.tabs) == 2
            await first.key("\r")
            await first.until("REPLAY")
            await first.key("q")
            await first.until("1 session, 0 running")
            await first.key("q")
            await first.end()
        await gone(process)
        # The end of the server is the end of its tabs.
        async with tab(server, client) as third:
            await third.until("1 session, 0 running")
            (process,) = server.tabs
            server.process.send_signal(signal.SIGTERM)
            await third.end()
            _, err = await asyncio.to_thread(server.process.communicate, None, PATIENCE_S)
        await gone(process)
        assert server.process.returncode == 0 and "Traceback" not in err


async def test_a_killed_server_leaves_no_tab(
    client: aiohttp.ClientSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    async with serving() as server, tab(server, client) as opened:
        await opened.until("no sessions yet")
        (process,) = server.tabs
        server.process.kill()
        await opened.end()
        await gone(process)
    assert not list(tmp_path.glob("warpdeck-traceback-*"))  # nobody is left to see it: no crash


async def test_as_many_tabs_as_the_machine_bears(client: aiohttp.ClientSession) -> None:
    from warpdeck.tui.settings import Settings
    from warpdeck.tui.web import TABS, GuardedServer

    async with serving() as server:
        await client.get(server.url)
        url, headers = server.base.with_path("/ws"), {"Origin": server.origin}
        opened = [await client.ws_connect(url, headers=headers) for _ in range(TABS)]
        with pytest.raises(aiohttp.WSServerHandshakeError) as refused:
            await client.ws_connect(url, headers=headers)
        assert refused.value.status == 503
        for socket in opened:
            await socket.close()
    program = GuardedServer(Gate("127.0.0.1", 1), Settings(readonly=True, theme="light")).program
    assert program[-3:] == ["--theme", "light", "--readonly"]


@pytest.mark.skipif(browser.PROGRAM is None, reason=NO_BROWSER)
async def test_in_a_browser(isolated_home: Path, tmp_path: Path) -> None:
    write_session(isolated_home / "sessions", run_events(20, end=True), "softmax-random-1")

    async with serving() as server, browser.browser(tmp_path, (1200, 800)) as page:
        await page.open(str(server.url))

        async def until(test: Callable[[], Awaitable[bool]]) -> None:
            async with asyncio.timeout(PATIENCE_S):
                while not await test():
                    await asyncio.sleep(0.1)

        async def shown(*words: str) -> bool:
            """Whether the dashboard wrote the words, and text is painted, also at the right edge."""
            painted = await page.value(INK)
            return all(word.encode() in page.received for word in words) and painted > 500

        await until(lambda: shown("1 session, 0 running"))
        assert "token" not in await page.value("location.href + document.cookie + document.referrer")
        (process,) = server.tabs
        (tmp_path / "start.png").write_bytes(await page.picture())
        await page.click(600, 300)
        page.received = b""
        await page.press("?")
        await until(lambda: shown("First row", "Quit"))
        (tmp_path / "help.png").write_bytes(await page.picture())
        page.received = b""
        await page.press("q")  # out of the help
        await until(lambda: shown("1 session"))
        await page.press("q")  # out of the dashboard

        async def closed() -> bool:
            return await page.value("document.body.classList.contains('-closed')")

        await until(closed)
        await gone(process)
        # Nothing is fetched from elsewhere: the page's font is refused, and nothing else fails.
        usual = ("googleapis", "WebGL", "willReadFrequently")
        outside = [text for text in page.log if not any(word in text for word in usual)]
        assert not outside


@pytest.mark.skipif(browser.PROGRAM is None, reason=NO_BROWSER)
async def test_a_copy_reaches_the_browsers_clipboard(isolated_home: Path, tmp_path: Path) -> None:
    """`y` is OSC 52 here too: the page's terminal puts it on the clipboard."""
    write_session(isolated_home / "sessions", run_events(20, end=True), "softmax-random-1")

    async with serving() as server, browser.browser(tmp_path) as page, asyncio.timeout(PATIENCE_S):
        await page.open(str(server.url))
        await page.allow_clipboard()
        while b"1 session, 0 running" not in page.received:
            await page.value("1")  # frames are read on the way to an answer
            await asyncio.sleep(0.1)
        await page.click(600, 300)
        await page.press("y")
        while await page.clipboard() != "softmax-random-1":
            await asyncio.sleep(0.1)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--host", "0.0.0.0"], "--allow-remote"),
        (["--host", "192.0.2.1"], "--allow-remote"),
        (["--host", "example.org"], "--allow-remote"),
        (["--host", "192.0.2.1", "--allow-remote"], "can't listen"),
        (["--theme", "ligth"], "did you mean light?"),
    ],
)
def test_refused(options: list[str], words: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["web", *options]) == 2
    assert words in capsys.readouterr().err


def test_a_taken_port_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    import socket

    with socket.create_server(("127.0.0.1", 0)) as taken:
        assert run(["web", "--port", str(taken.getsockname()[1])]) == 2
    assert "can't listen at 127.0.0.1" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("host", "port", "header", "known"),
    [
        ("127.0.0.1", 8765, "127.0.0.1:8765", True),
        ("127.0.0.1", 8765, "localhost:8765", True),
        ("::1", 8765, "[::1]:8765", True),
        ("127.0.0.1", 80, "127.0.0.1", True),
        ("127.0.0.1", 8765, "127.0.0.1", False),
        ("127.0.0.1", 8765, "127.0.0.1:8765.evil.example", False),
        ("127.0.0.1", 8765, "evil.example:8765", False),
        ("127.0.0.1", 8765, "user@127.0.0.1:8765", False),
        ("127.0.0.1", 8765, "", False),
        ("127.0.0.1", 8765, None, False),
        ("0.0.0.0", 8765, "192.0.2.7:8765", True),
        ("0.0.0.0", 8765, "evil.example:8765", False),
        ("192.0.2.7", 8765, "192.0.2.7:8765", True),
        ("192.0.2.7", 8765, "localhost:8765", False),
    ],
)
def test_the_host_header(host: str, port: int, header: str | None, known: bool) -> None:
    assert Gate(host, port).known_host(header) is known


def test_tokens() -> None:
    gate, other = Gate("127.0.0.1", 1), Gate("127.0.0.1", 1)
    assert gate.token != other.token and gate.session != gate.token and len(gate.token) >= 40
    assert gate.right_token(gate.token) and gate.right_cookie(gate.session)
    for wrong in (None, "", gate.token[:-1], other.token, gate.session, "é"):
        assert not gate.right_token(wrong)
    assert not gate.right_cookie(gate.token)
    assert gate.token not in repr(gate) and gate.session not in repr(gate)
    assert is_loopback("127.8.9.1") and is_loopback("::1") and is_loopback("localhost")
    assert not any(map(is_loopback, ("0.0.0.0", "::", "192.0.2.1", "localhost.evil.example", "")))
