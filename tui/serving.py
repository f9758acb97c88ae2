"""Who may talk to the served dashboard: the token, the cookie, the Host and the Origin of a request."""

from __future__ import annotations

import hmac
import ipaddress
import re
import secrets
from dataclasses import dataclass, field
from urllib.parse import urlsplit

_AUTHORITY = re.compile(r"(?:[A-Za-z0-9.-]+|\[[0-9A-Fa-f:.]+\])(?::[0-9]{1,5})?")


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach an address. A name is, if it is "localhost"."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


def _bracketed(host: str) -> str:
    return f"[{host}]" if ":" in host and not host.startswith("[") else host


@dataclass(frozen=True)
class Gate:
    """Decides about requests to one server. `host`: the address that it listens at.

    The token of the URL is exchanged for a cookie once, so that it stays out of the address bar, of history
    and of Referer headers; both are random, and of one run of the server.
    """

    host: str
    port: int
    token: str = field(default_factory=lambda: secrets.token_urlsafe(32), repr=False)
    session: str = field(default_factory=lambda: secrets.token_urlsafe(32), repr=False)

    @property
    def cookie(self) -> str:
        """The cookie's name: cookies know no ports, and there may be several servers."""
        return f"warpdeck-{self.port}"

    @property
    def url(self) -> str:
        """What to open first."""
        return f"http://{_bracketed(self._shown_host)}:{self.port}/?token={self.token}"

    @property
    def _shown_host(self) -> str:
        try:
            any_address = ipaddress.ip_address(self.host).is_unspecified
        except ValueError:
            return self.host
        return "127.0.0.1" if any_address else self.host

    def known_host(self, header: str | None) -> bool:
        """Whether a Host header names this server: a page of another name that points here does not.

        Where all addresses are listened at, any address does, but no name besides localhost.
        """
        if not header:
            return False
        name, port = _host_port(header)
        if port != self.port:
            return False
        if name in (self.host, "localhost", "127.0.0.1", "::1") and (
            name == self.host or is_loopback(self._shown_host)
        ):
            return True
        try:
            ipaddress.ip_address(name)
            return ipaddress.ip_address(self.host).is_unspecified
        except ValueError:
            return False

    def same_origin(self, origin: str | None, host: str | None) -> bool:
        """Whether a page of this server opens the websocket. Browsers always send an Origin there."""
        return bool(origin) and bool(host) and origin == f"http://{host}"

    def right_token(self, given: str | None) -> bool:
        """Compared in constant time."""
        return given is not None and hmac.compare_digest(given.encode(), self.token.encode())

    def right_cookie(self, given: str | None) -> bool:
        """Compared in constant time."""
        return given is not None and hmac.compare_digest(given.encode(), self.session.encode())


def _host_port(header: str) -> tuple[str, int | None]:
    """("127.0.0.1", 8765) of "127.0.0.1:8765"; port 80 where none is given."""
    if not _AUTHORITY.fullmatch(header):
        return "", None
    try:
        parts = urlsplit(f"//{header}")
        return (parts.hostname or "").lower(), parts.port or 80
    except ValueError:
        return "", None
