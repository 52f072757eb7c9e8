"""Pictures from addresses that requests name: never from a private one, whatever the name says.

A name is resolved first, all that it resolves to is checked, and the connection goes to what was
checked: another answer of the name server a moment later changes nothing. Every redirect is an
address of its own.
"""

import asyncio
import socket
from collections.abc import Callable
from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network
from urllib.parse import urljoin, urlsplit

import aiohttp
from aiohttp.abc import AbstractResolver, ResolveResult
from aiohttp.resolver import ThreadedResolver

from ..http.errors import APIError, bad_request

_SECONDS = 20
_REDIRECTS = 3
_CHUNK = 65_536
# IPv6 addresses in which a gateway finds an IPv4 one.
_TRANSLATED = tuple(map(ip_network, ("64:ff9b::/96", "64:ff9b:1::/48", "2002::/16", "2001::/32")))

Address = IPv4Address | IPv6Address


def is_public(address: Address) -> bool:
    """Whether an address is everybody's: not this machine, its network, or a cloud's own."""
    if isinstance(address, IPv6Address):
        if address.ipv4_mapped:
            return is_public(address.ipv4_mapped)
        if any(address in network for network in _TRANSLATED):
            return False
    return address.is_global and not address.is_multicast


async def fetch_image(
    url: str, param: str, most_bytes: int, allowed: Callable[[Address], bool] = is_public
) -> bytes:
    """The bytes at an address of http(s).

    Args:
        param: what the request calls it.
        allowed: addresses that may be connected to.

    Raises:
        Refusal: it cannot be had, is too large, or leads to an address that is not allowed.
    """
    connector = aiohttp.TCPConnector(resolver=_Checked(allowed), use_dns_cache=False)
    try:
        async with (
            asyncio.timeout(_SECONDS),
            aiohttp.ClientSession(connector=connector, cookie_jar=aiohttp.DummyCookieJar()) as http,
        ):
            return await _followed(http, url, most_bytes, allowed)
    except _Forbidden:
        raise _unavailable(param, "leads to an address that is not public") from None
    except _TooLarge:
        message = f"{param} has more than {most_bytes} bytes"
        raise bad_request(message, param, "image_file_too_large") from None
    except (aiohttp.ClientError, TimeoutError, OSError, ValueError):
        # What exactly happened would tell about the network that this service is in.
        raise _unavailable(param, "cannot be fetched") from None


class _Forbidden(Exception):  # noqa: N818 - reads as what it is
    """An address that is not allowed."""


class _TooLarge(Exception):  # noqa: N818 - likewise
    """More bytes than are taken."""


class _Checked(AbstractResolver):
    """Resolves a name to addresses that are allowed, all of them, or not at all."""

    def __init__(self, allowed: Callable[[Address], bool]) -> None:
        self._allowed, self._names = allowed, ThreadedResolver()

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_UNSPEC
    ) -> list[ResolveResult]:
        found = await self._names.resolve(host, port, family)
        if not all(self._allowed(_address(each["host"])) for each in found):
            raise _Forbidden
        return found

    async def close(self) -> None:
        await self._names.close()


async def _followed(
    http: aiohttp.ClientSession,
    url: str,
    most_bytes: int,
    allowed: Callable[[Address], bool],
) -> bytes:
    for _ in range(_REDIRECTS + 1):
        _check(url, allowed)
        async with http.get(url, allow_redirects=False) as response:
            if response.status // 100 != 3:
                response.raise_for_status()
                return await _read(response, most_bytes)
            url = urljoin(url, response.headers.get("Location", ""))
    raise ValueError("too many redirects")


def _check(url: str, allowed: Callable[[Address], bool]) -> None:
    """Addresses in numbers are not resolved; what is no http(s) is not asked for."""
    split = urlsplit(url)
    host = split.hostname or ""
    if split.scheme not in ("http", "https") or not host:
        raise _Forbidden
    if _is_numeric(host) and not allowed(_address(host)):
        raise _Forbidden


def _is_numeric(host: str) -> bool:
    """Whether it is connected to as it is, without being resolved (`127.1` and `2130706433` are).

    Those that are no address in the usual form raise ValueError where they are read.
    """
    return ":" in host or host.replace(".", "").isdigit()


async def _read(response: aiohttp.ClientResponse, most_bytes: int) -> bytes:
    data = bytearray()
    async for chunk in response.content.iter_chunked(_CHUNK):
        data += chunk
        if len(data) > most_bytes:
            raise _TooLarge
    return bytes(data)


def _address(host: str) -> Address:
    return ip_address(host.partition("%")[0])


def _unavailable(param: str, why: str) -> APIError:
    return bad_request(f"{param} {why}", param, "failed_to_download_image")
