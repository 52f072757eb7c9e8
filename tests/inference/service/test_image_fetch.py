"""Images are fetched from public addresses only, whatever a URL, a name or a redirect says."""

import http.server
import threading
from ipaddress import ip_address

import pytest

from inference.http.errors import APIError
from inference.service.image_fetch import fetch_image, is_public
from tests.inference.service.running_service import error_of, running_service
from tests.inference.service.test_hostile_clients import PATH, with_image
from warehouse import EncodedImage


@pytest.mark.parametrize(
    ("address", "public"),
    [
        ("8.8.8.8", True),
        ("2606:4700:4700::1111", True),
        ("127.0.0.1", False),
        ("10.1.2.3", False),
        ("169.254.169.254", False),
        ("100.64.0.1", False),
        ("0.0.0.0", False),
        ("224.0.0.1", False),
        ("::1", False),
        ("::ffff:127.0.0.1", False),
        ("fe80::1", False),
        ("fd00::1", False),
        ("64:ff9b::7f00:1", False),
        ("2002:7f00:1::", False),
    ],
)
def test_private_addresses_are_recognised(address, public):
    assert is_public(ip_address(address)) == public


class ImageServer(http.server.BaseHTTPRequestHandler):
    """Serves an image, a large file, and redirects."""

    def do_GET(self):
        location = {"/private": f"http://127.0.0.2:{self.server.server_port}/picture",
              "/numeric": f"http://2130706434:{self.server.server_port}/picture",
              "/file": "file:///etc/passwd", "/round": "/round"}.get(self.path)  # fmt: skip
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
    thread = threading.Thread(target=server.serve_forever)
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
    assert (
        await fetch_image(f"{address}/picture", "p", 9000, allow_one)
        == EncodedImage.white((64, 64)).data
    )
    for path, reason in [
        ("/private", "not public"),
        ("/numeric", "cannot be fetched"),
        ("/file", "not public"),
        ("/round", "cannot be fetched"),
        ("/much", "more than 9000 bytes"),
    ]:
        with pytest.raises(APIError, match=reason):
            await fetch_image(address + path, "p", 9000, allow_one)
    hosts = {host.rpartition(":")[0] for host in image_server.requested_hosts}
    assert hosts == {"127.0.0.1"}


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1", "[::1]", "0x7f.1", "127.1", "0"])
async def test_the_own_machine_is_never_fetched_from(image_server, host):
    with pytest.raises(APIError):
        await fetch_image(f"http://{host}:{image_server.server_port}/picture", "p", 9000)
    assert not image_server.requested_hosts


def test_a_service_fetches_from_public_addresses_only(home, image_server):
    with running_service(home, limits={"remote_pictures": True}) as service:
        url = f"http://127.0.0.1:{image_server.server_port}/picture"
        error = error_of(service.post(PATH, json=with_image(url)), 400)
        assert "not public" in error["message"] and not image_server.requested_hosts
