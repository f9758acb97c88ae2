"""The dashboard in a browser: Textual's server with a token before everything, on this machine only."""

from __future__ import annotations

import asyncio
import json
import logging
import shlex
import socket
import sys
from asyncio.subprocess import Process
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from aiohttp import WSCloseCode, WSMsgType, web
from textual_serve.app_service import AppService
from textual_serve.server import Server

from ..core.errors import UsageError
from .serving import Gate
from .settings import Settings

TABS = 8  # each is a process of some 60 MB
LONGEST = 4 << 20  # bytes of one message from a browser
GRACE_S = 3.0
LARGEST = 1000  # columns or rows
HEADERS = {
    # The page has scripts and styles in it; nothing comes from elsewhere.
    "Content-Security-Policy": "default-src 'self'; script-src 'self' 'unsafe-inline';"
    " style-src 'self' 'unsafe-inline'; img-src 'self' data:; font-src 'self' data:;"
    " connect-src 'self'; frame-ancestors 'none'; base-uri 'none'; form-action 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-store",
}


def serve(host: str, port: int, settings: Settings, ready: Callable[[str], None]) -> None:
    """Serve until Ctrl-C or SIGTERM. `ready` is told the URL to open, with the token.

    UsageError if the address can't be listened at.
    """
    logging.getLogger("textual-serve").addHandler(logging.NullHandler())
    try:
        info = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0]
        bound = socket.create_server(info[4][:2], family=info[0], backlog=64)
    except OSError as error:
        raise UsageError(f"can't listen at {host}, port {port}: {error.strerror or error}") from None
    with bound:
        server = GuardedServer(Gate(host, bound.getsockname()[1]), settings)
        web.run_app(
            server.application(lambda: ready(server.gate.url)),
            sock=bound,
            shutdown_timeout=GRACE_S,
            access_log=None,  # it would hold the token
            print=None,
        )


class GuardedServer(Server):
    """Textual's, which lets in who has the token."""

    def __init__(self, gate: Gate, settings: Settings) -> None:
        self.program = [sys.executable, "-m", f"{__package__}.served", "--theme", settings.theme]
        self.program += ["--readonly"] if settings.readonly else []
        super().__init__(shlex.join(self.program), gate.host, gate.port, title="warpdeck")
        self.gate = gate
        self._open: dict[web.WebSocketResponse, Tab] = {}

    async def application(self, ready: Callable[[], None]) -> web.Application:
        """The application; `ready` is called when it is about to take requests."""
        app = await self._make_app()
        app.middlewares.append(self._guard)
        app.on_startup.clear()  # Textual's prints

        async def started(_: web.Application) -> None:
            ready()

        app.on_startup.append(started)
        return app

    async def on_shutdown(self, app: web.Application) -> None:
        """Close the tabs: their dashboards end, runs go on."""
        tabs = dict(self._open)
        await asyncio.gather(*(tab.end() for tab in tabs.values()))
        for page in tabs:
            await page.close(code=WSCloseCode.GOING_AWAY, message=b"the server ends", drain=False)

    @web.middleware
    async def _guard(
        self, request: web.Request, handler: Callable[[web.Request], Awaitable[web.StreamResponse]]
    ) -> web.StreamResponse:
        host = request.headers.get("Host")
        if not self.gate.known_host(host):
            return _refusal("this is not the address that warpdeck web printed")
        if request.path == "/" and "token" in request.query:
            return self._enter(request.query["token"])
        if not self.gate.right_cookie(request.cookies.get(self.gate.cookie)):
            return _refusal("open the URL that warpdeck web printed: it has the token")
        if request.path == "/ws":
            if not self.gate.same_origin(request.headers.get("Origin"), host):
                return _refusal("only its own page may open this")
            if len(self._open) >= TABS:
                return web.Response(status=503, text=f"{TABS} tabs are open; close one\n")
            return await handler(request)
        self.public_url = f"http://{host}"  # where this browser reached it, for the page's links
        try:
            response = await handler(request)
        except web.HTTPException as error:
            error.headers.update(HEADERS)
            raise
        if not response.prepared:
            response.headers.update(HEADERS)
        return response

    def _enter(self, token: str) -> web.Response:
        if not self.gate.right_token(token):
            return _refusal("the token is not of this server; open the URL that it printed")
        response = web.Response(status=303, headers={**HEADERS, "Location": "/"})
        response.set_cookie(self.gate.cookie, self.gate.session, httponly=True, samesite="Strict", path="/")
        return response

    async def handle_websocket(self, request: web.Request) -> web.WebSocketResponse:
        """One tab: a process of its own, as long as the tab is open."""
        websocket = web.WebSocketResponse(heartbeat=15, max_msg_size=LONGEST)
        await websocket.prepare(request)
        tab = Tab(
            self.program,
            write_bytes=websocket.send_bytes,
            write_str=websocket.send_str,
            close=websocket.close,
            download_manager=self.download_manager,
        )
        self._open[websocket] = tab
        try:
            await tab.start(_cells(request.query.get("width"), 80), _cells(request.query.get("height"), 24))
            await self._process_messages(websocket, tab)
        except (ConnectionError, RuntimeError):
            pass  # the browser or the process went while something was on its way
        finally:
            self._open.pop(websocket, None)
            await asyncio.shield(tab.end())
            await websocket.close()
        return websocket

    async def _process_messages(self, websocket: web.WebSocketResponse, app_service: AppService) -> None:
        async for message in websocket:
            if message.type != WSMsgType.TEXT:
                continue
            match _envelope(message.data):
                case ["stdin", str(text)]:
                    await app_service.send_bytes(text.encode("utf-8", "replace"))
                case ["resize", {"width": int(width), "height": int(height)}]:
                    await app_service.set_terminal_size(_cells(width, 80), _cells(height, 24))
                case ["ping", data]:
                    await websocket.send_json(["pong", data])
                case ["blur", *_]:
                    await app_service.blur()
                case ["focus", *_]:
                    await app_service.focus()


class Tab(AppService):
    """A tab's process, which ends with the tab, whatever state it is in."""

    def __init__(self, program: Sequence[str], **ways: Any) -> None:
        super().__init__(shlex.join(program), **ways)
        self._program = program
        self._ended = asyncio.Lock()

    async def _open_app_process(self, width: int = 80, height: int = 24) -> Process:
        """Not through a shell, and out of reach of the server's Ctrl-C."""
        pipes = dict.fromkeys(("stdin", "stdout", "stderr"), asyncio.subprocess.PIPE)
        environment = self._build_environment(width, height)
        process = await asyncio.create_subprocess_exec(
            *self._program, **pipes, env=environment, start_new_session=True
        )
        self._process, self._stdin = process, process.stdin
        return process

    def _build_environment(self, width: int = 80, height: int = 24) -> dict[str, str]:
        environment = super()._build_environment(width, height)
        environment.pop("NO_COLOR", None)  # the terminal's that the server was started in
        return environment

    async def end(self) -> None:
        """Ask the dashboard to leave; kill it if it doesn't."""
        async with self._ended:  # the tab and the server may end at once
            process, self._process = self._process, None
            if process is None:
                return
            try:
                await asyncio.wait_for(self.stop(), GRACE_S)
                await asyncio.wait_for(process.wait(), GRACE_S)
            except (TimeoutError, ConnectionError):
                process.kill()
                await process.wait()


def _envelope(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return None


def _cells(given: object, default: int) -> int:
    """A number of columns or rows from a browser."""
    try:
        number = int(str(given))
    except ValueError:
        return default
    return min(max(number, 1), LARGEST)


def _refusal(why: str) -> web.Response:
    return web.Response(status=403, text=f"403: {why}\n", headers=HEADERS)
