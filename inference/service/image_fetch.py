"""Fetches images from URLs of requests, never from private addresses (SSRF).

A host name is resolved once, all its addresses are checked, and the connection goes to a checked
address, so that a later answer of the name server changes nothing. Redirects are checked likewise.
"""

import asyncio
import socket
from collections.abc import Callable
from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network
from urllib.parse import urljoin, urlsplit

import aiohttp
from aiohttp.abc import ResolveResult
from aiohttp.resolver import ThreadedResolver

from ..http.errors import bad_request

_SECONDS = 20
_REDIRECTS = 3
_CHUNK = 65_536
_FAILED = "failed_to_download_image"
# IPv6 addresses that a gateway translates to IPv4.
_TRANSLATED = tuple(map(ip_network, ("64:ff9b::/96", "64:ff9b:1::/48", "2002::/16", "2001::/32")))

Address = IPv4Address | IPv6Address


def is_public(address: Address) -> bool:
    """Whether an address is global: not of this machine, its network, or a cloud's metadata."""
    if isinstance(address, IPv6Address):
        if address.ipv4_mapped:
            return is_public(address.ipv4_mapped)
        if any(address in network for network in _TRANSLATED):
            return False
    return address.is_global and not address.is_multicast


async def fetch_image(
    url: str, param: str, max_bytes: int, allowed: Callable[[Address], bool] = is_public
) -> bytes:
    """The content of an http(s) URL. `param`: the request's name for it, for error messages.

    Raises:
        APIError: it is unavailable, too large, or leads to an address that is not allowed.
    """
    connector = aiohttp.TCPConnector(resolver=_CheckedResolver(allowed), use_dns_cache=False)
    try:
        async with (
            asyncio.timeout(_SECONDS),
            aiohttp.ClientSession(connector=connector, cookie_jar=aiohttp.DummyCookieJar()) as http,
        ):
            data = await _get(http, url, max_bytes, allowed)
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


class _CheckedResolver(ThreadedResolver):
    """Resolves a host name if all its addresses are allowed."""

    def __init__(self, allowed: Callable[[Address], bool]) -> None:
        super().__init__()
        self._allowed = allowed

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_UNSPEC
    ) -> list[ResolveResult]:
        results = await super().resolve(host, port, family)
        for result in results:
            _check_address(result["host"], self._allowed)
        return results


async def _get(
    http: aiohttp.ClientSession, url: str, max_bytes: int, allowed: Callable[[Address], bool]
) -> bytes:
    for _ in range(_REDIRECTS + 1):
        _check(url, allowed)
        async with http.get(url, allow_redirects=False) as response:
            if response.status // 100 != 3:
                response.raise_for_status()
                return await _read(response, max_bytes)
            url = urljoin(url, response.headers.get("Location", ""))
    raise ValueError("too many redirects")


def _check(url: str, allowed: Callable[[Address], bool]) -> None:
    """Check the scheme, and an address in numbers, which is not resolved."""
    split = urlsplit(url)
    host = split.hostname or ""
    if split.scheme not in ("http", "https") or not host:
        raise _NotPublicError
    # `127.1` and `2130706433` are addresses too, which `ip_address` rejects with a ValueError.
    if ":" in host or host.replace(".", "").isdigit():
        _check_address(host, allowed)


def _check_address(host: str, allowed: Callable[[Address], bool]) -> None:
    if not allowed(ip_address(host.partition("%")[0])):
        raise _NotPublicError


async def _read(response: aiohttp.ClientResponse, max_bytes: int) -> bytes:
    """The content, or more than `max_bytes` of it."""
    data = bytearray()
    async for chunk in response.content.iter_chunked(_CHUNK):
        data += chunk
        if len(data) > max_bytes:
            break
    return bytes(data)
