"""Fetches images from URLs of requests, never from private addresses (SSRF).

The HTTP client's own parser makes a URL plain first (`127。0。0。1` is an address to it), and each
address is checked where the socket to it is opened, after a name was resolved: what is checked is
what is connected to. Redirects are checked likewise.
"""

import asyncio
import re
import socket
from collections.abc import Callable
from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network

import aiohttp
from yarl import URL

from ..http.errors import bad_request

_SECONDS = 20
_REDIRECTS = 3
_CHUNK = 65_536
_FAILED = "failed_to_download_image"
_HOST = re.compile(r"[a-z0-9._-]+|[0-9a-f:.]+", re.IGNORECASE)  # no zone, nothing escaped
# All global ones; others are translated to IPv4 (NAT64), or were never given to anyone.
_GLOBAL_IPV6 = ip_network("2000::/3")
# IPv6 addresses that a gateway translates to IPv4; services of clouds and networks, though global.
_NEVER = tuple(map(ip_network, ("2002::/16", "2001::/32", "192.0.0.0/24", "168.63.129.16/32")))

Address = IPv4Address | IPv6Address


def is_public(address: Address) -> bool:
    """Whether an address is global: not of this machine, its network, or a cloud's metadata."""
    if isinstance(address, IPv6Address):
        if address.ipv4_mapped:
            return is_public(address.ipv4_mapped)
        if address not in _GLOBAL_IPV6:
            return False
    if any(address in network for network in _NEVER):
        return False
    return address.is_global and not address.is_multicast


async def fetch_image(
    url: str, param: str, max_bytes: int, allowed: Callable[[Address], bool] = is_public
) -> bytes:
    """The content of an http(s) URL. `param`: the request's name for it, for error messages.

    Raises:
        APIError: it is unavailable, too large, or leads to an address that is not allowed.
    """
    # One address after the other: a race of them would hide the error of a checked one.
    connector = aiohttp.TCPConnector(
        socket_factory=lambda target: _open_socket(target, allowed), happy_eyeballs_delay=None
    )
    try:
        async with (
            asyncio.timeout(_SECONDS),
            aiohttp.ClientSession(connector=connector, cookie_jar=aiohttp.DummyCookieJar()) as http,
        ):
            data = await _get(http, url, max_bytes)
    except _NotPublicError:
        message = f"{param} leads to an address that is not public"
        raise bad_request(message, param, _FAILED) from None
    except (aiohttp.ClientError, TimeoutError, OSError, ValueError):
        # Details would reveal the service's network.
        raise bad_request(f"{param} cannot be fetched", param, _FAILED) from None
    if len(data) > max_bytes:
        message = f"{param} has more than {max_bytes} bytes"
        raise bad_request(message, param, "image_file_too_large")
    return data


class _NotPublicError(Exception):
    """A URL leads to an address that is not allowed."""


def _open_socket(target: aiohttp.AddrInfoType, allowed: Callable[[Address], bool]) -> socket.socket:
    family, kind, protocol, _, address = target
    if not allowed(ip_address(str(address[0]).partition("%")[0])):
        raise _NotPublicError
    return socket.socket(family, kind, protocol)


async def _get(http: aiohttp.ClientSession, url: str, max_bytes: int) -> bytes:
    target = URL(url)
    for _ in range(_REDIRECTS + 1):
        _check(target)
        async with http.get(target, allow_redirects=False) as response:
            if response.status // 100 != 3:
                response.raise_for_status()
                return await _read(response, max_bytes)
            target = target.join(URL(response.headers.get("Location", "")))
    raise ValueError("too many redirects")


def _check(url: URL) -> None:
    """Check the scheme, and that the host is a plain name or an address."""
    if url.scheme not in ("http", "https") or not _HOST.fullmatch(url.raw_host or ""):
        raise _NotPublicError


async def _read(response: aiohttp.ClientResponse, max_bytes: int) -> bytes:
    """The content, or more than `max_bytes` of it."""
    data = bytearray()
    async for chunk in response.content.iter_chunked(_CHUNK):
        data += chunk
        if len(data) > max_bytes:
            break
    return bytes(data)
