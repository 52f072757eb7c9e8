"""Images are fetched from public addresses only, whatever a URL, a name or a redirect says."""

import http.server
import socket
import threading
from ipaddress import ip_address

import pytest

from inference.http.errors import APIError
from inference.service.image_fetch import fetch_image, is_public
from tests.inference.service.running_service import error_of, running_service
from tests.inference.service.test_hostile_clients import PATH, with_image
from warehouse import EncodedImage

PUBLIC = ("8.8.8.8", "2606:4700:4700::1111")
PRIVATE = (
    "127.0.0.1", "10.1.2.3", "169.254.169.254", "100.64.0.1", "0.0.0.0", "224.0.0.1", "::1",
    "::ffff:127.0.0.1", "fe80::1", "fd00::1", "64:ff9b::7f00:1", "2002:7f00:1::", "fd00:ec2::254",
    "168.63.129.16", "192.0.0.192", "::127.0.0.1", "::ffff:0:127.0.0.1", "fec0::1",
)  # fmt: skip


def test_private_addresses_are_recognised():
    assert all(is_public(ip_address(address)) for address in PUBLIC)
    assert not any(is_public(ip_address(address)) for address in PRIVATE)


class ImageServer(http.server.BaseHTTPRequestHandler):
    """Serves an image, a large file, and redirects."""

    def do_GET(self):
        port = self.server.server_port
        location = {
            "/private": f"http://127.0.0.2:{port}/picture",
            "/numeric": f"http://2130706434:{port}/picture",
            "/wide": f"http://127%E3%80%820.0.2:{port}/picture",
            "/mapped": f"http://[::ffff:127.0.0.2]:{port}/picture",
            "/file": "file:///etc/passwd",
            "/round": "/round",
            "/next": "/picture",
        }.get(self.path)
        if location:
            self.send_response(302)
            self.send_header("Location", location)
            self.end_headers()
            return
        self.server.requested_hosts.append(self.headers["Host"])
        self.send_response(200)
        self.end_headers()
        data = EncodedImage.white((64, 64)).data
        self.wfile.write(data if self.path == "/picture" else bytes(10_000))

    def log_message(self, *arguments):
        """Stay quiet."""


@pytest.fixture
def image_server():
    server = http.server.ThreadingHTTPServer(("0.0.0.0", 0), ImageServer)
    server.requested_hosts = []
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


def allow_one(address):
    """As if 127.0.0.1 were public, and the other addresses of this machine private."""
    return str(address) == "127.0.0.1"


async def test_images_are_fetched_from_public_addresses(image_server):
    address = f"http://127.0.0.1:{image_server.server_port}"
    for path in ("/picture", "/next"):
        data = await fetch_image(address + path, "p", 9000, allow_one)
        assert data == EncodedImage.white((64, 64)).data
    for path, reason in [
        ("/private", "not public"),
        ("/numeric", "cannot be fetched"),
        ("/wide", "not public"),
        ("/mapped", "not public"),
        ("/file", "not public"),
        ("/round", "cannot be fetched"),
        ("/much", "more than 9000 bytes"),
    ]:
        with pytest.raises(APIError, match=reason):
            await fetch_image(address + path, "p", 9000, allow_one)
    hosts = {host.rpartition(":")[0] for host in image_server.requested_hosts}
    assert hosts == {"127.0.0.1"}


LOOPBACK = [
    "localhost", "127.0.0.1", "127.0.0.1.", "[::1]", "[::ffff:127.0.0.1]", "[::ffff:7f00:1]",
    "[::127.0.0.1]", "0x7f.1", "0x7f000001", "0177.0.0.1", "127.1", "2130706433", "0",
    "127。0。0。1", "127｡0｡0｡1", "127．0．0．1", "１２７.0.0.1", "①②⑦。⓪。⓪。①", "①27。1",
    "%31%32%37.0.0.1", "127%2e0.0.1", "ｌｏｃａｌｈｏｓｔ", "ⓛocalhost", "lo\u00adcalhost",
    "8.8.8.8@127.0.0.1", "8.8.8.8:80@127.0.0.1", "a%40b@127。0。0。1", "[::1%25lo]", "[::1%lo]",
    "[fe80::1%25lo]", "127.0.0.1\t", "8.8.8.8\\@127.0.0.1", "127.0.0.1%00.example.com",
]  # fmt: skip


METADATA = [
    "169.254.169.254", "169。254。169。254", "0xa9fea9fe", "0xa9.0xfe.0xa9.0xfe", "[fd00:ec2::254]",
    "[::ffff:169.254.169.254]", "[fe80::a9fe:a9fe]", "100.100.100.200",
]  # fmt: skip


async def test_this_machine_and_metadata_of_clouds_are_never_fetched_from(image_server):
    for host in LOOPBACK:
        with pytest.raises(APIError):
            await fetch_image(f"http://{host}:{image_server.server_port}/picture", "p", 9000)
        assert not image_server.requested_hosts, host
    for host in METADATA:
        with pytest.raises(APIError, match="not public"):
            await fetch_image(f"http://{host}/latest/meta-data", "p", 9000)


async def test_what_was_resolved_is_checked_where_it_is_connected_to(image_server, monkeypatch):
    """A name that leads to a public address at first and then to this machine is no way in."""
    answers = iter(["192.0.2.1", "127.0.0.2"])

    def resolve(host, port, *arguments, **options):
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (next(answers), port))]

    monkeypatch.setattr(socket, "getaddrinfo", resolve)
    url = f"http://rebinding.test:{image_server.server_port}/picture"
    checked = []

    def allowed(address):
        checked.append(str(address))
        return False

    for _ in range(2):
        with pytest.raises(APIError, match="not public"):
            await fetch_image(url, "p", 9000, allowed)
    assert checked == ["192.0.2.1", "127.0.0.2"] and not image_server.requested_hosts


def test_a_service_fetches_from_public_addresses_only(home, image_server):
    with running_service(home, limits={"remote_pictures": True}) as service:
        for host in ("127.0.0.1", "127。0。0。1", "①②⑦。⓪。⓪。①"):
            url = f"http://{host}:{image_server.server_port}/picture"
            error = error_of(service.post(PATH, json=with_image(url)), 400)
            assert "not public" in error["message"] and not image_server.requested_hosts
