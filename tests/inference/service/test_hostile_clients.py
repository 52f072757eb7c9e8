"""Slow, broken and hostile clients get errors in the API's shape; others are still served."""

import base64
import io
import json
import socket
import struct
import time
import zlib
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress

import httpx
import psutil
import pytest
from PIL import Image
from pydantic import ValidationError

from inference.http import server
from inference.http.body_reader import check_image
from inference.http.server import listening_socket
from inference.service.chat import ChatRequest
from inference.service.responses_request import ResponsesRequest
from tests.inference.service.running_service import (
    HOUSE,
    SNOWMAN,
    data_uri,
    error_of,
    raw_request,
    running_service,
    wait_until,
)
from warehouse import EncodedImage

PATH = "/v1/responses"
CHAT = "/v1/chat/completions"
JSON = {"Content-Type": "application/json"}


def with_image(url):
    parts = [{"type": "input_text", "text": "Describe"}, {"type": "input_image", "image_url": url}]
    return {"input": [{"role": "user", "content": parts}]}


def png(width, height, rows=b""):
    """A PNG whose header has this size, with these compressed rows."""

    def chunk(kind, data):
        body = kind + data
        return struct.pack(">I", len(data)) + body + struct.pack(">I", zlib.crc32(body))

    head = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", rows) + chunk(b"IEND", b"")


INVALID_REQUESTS = [
    b"",
    b"{",
    b"null",
    b"[]",
    b"3",
    b'"a cat"',
    b"\xff\xfe",
    b'{"input": "\\ud800"}',
    b'{"input": NaN}',
    b'{"input": "a cat", "temperature": Infinity}',
    b"[" * 100_000,
    b'{"input": ' + b"[" * 100_000 + b"]" * 100_000 + b"}",
    b'{"input": ' + b'{"a":' * 50_000 + b"1" + b"}" * 50_000 + b"}",
    b'{"input": null}',
    b'{"input": []}',
    b'{"input": {}}',
    b'{"input": ""}',
    b'{"input": "  "}',
    b'{"input": [[]]}',
    b'{"input": [{"type": "function_call", "content": "a cat"}]}',
    b'{"input": [{"type": [], "content": "a cat"}]}',
    b'{"input": [{"role": "user", "content": [{"type": "input_file"}]}]}',
    b'{"input": "a cat", "stream": "yes"}',
    b'{"input": "a cat", "metadata": {"a": 1}}',
    b'{"input": "a cat", "metadata": {"%s": "1"}}' % (b"a" * 65),
    b'{"input": "a cat", "interleave": {"t_max": 0}}',
    b'{"input": "a cat", "interleave": {"t_max": true}}',
    b'{"input": "a cat", "interleave": {"seed": 1e300}}',
    b'{"input": "a cat", "interleave": {"seed": 99999999999999999999999}}',
    b'{"input": "a cat", "interleave": {"tmax": 1}}',
    b'{"input": "a cat", "interleave": {"max_steps": 101}}',
    b'{"input": "a cat", "background": true, "store": false}',
    b'{"model": "interleave"}',
    json.dumps({"input": "a cat " * 10_000}).encode(),
]
INVALID_CHAT_REQUESTS = [
    b'{"messages": null}',
    b'{"messages": [{"role": "user", "content": [{"type": "image_url"}]}]}',
    b'{"messages": [{"role": "user", "content": null}]}',
    json.dumps({"messages": [{"role": "user", "content": "![" * 200_000}]}).encode(),
]


def test_invalid_requests_are_rejected(service):
    for path, bodies in ((PATH, INVALID_REQUESTS), (CHAT, INVALID_CHAT_REQUESTS)):
        for body in bodies:
            error = error_of(service.post(path, content=body, headers=JSON), 400)
            assert error["type"] == "invalid_request_error", body[:80]


def test_invalid_images_are_rejected(service):
    for url, reason in [
        ("data:image/png;base64,!!!!", "not base64"),
        ("data:image/png;base64,AAA", "not base64"),
        ("data:image/png,AAAA", "not in base64"),
        ("data:", "not in base64"),
        ("data:image/png;base64,", "is empty"),
        ("data:text/plain;base64,aGVsbG8=", "not a PNG, JPEG or WebP"),
        ("file:///etc/passwd", "as a data URI"),
        ("/etc/passwd", "as a data URI"),
        ("ftp://127.0.0.1/x", "as a data URI"),
        ("http://127.0.0.1/x.png", "does not fetch images"),
        ("HTTPS://example.com/x.png", "does not fetch images"),
    ]:
        error = error_of(service.post(PATH, json=with_image(url)), 400)
        assert reason in error["message"] and error["param"] == "input.0.content.1.image_url"


def test_decompression_bombs_are_not_decoded(service):
    """Images whose header claims a size, or whose few bytes expand to it."""
    for data in (png(2**31 - 1, 2**31 - 1), png(60_000, 60_000), png(30_000, 30_000, b"x" * 99)):
        bomb = service.post(PATH, json=with_image(data_uri(EncodedImage(data))))
        assert error_of(bomb, 400)["code"] == "image_too_large"
    truncated = service.post(PATH, json=with_image(data_uri(EncodedImage(png(64, 64, b"x")))))
    assert error_of(truncated, 400)["code"] == "invalid_image"


def costly_images():
    """Small files that would take seconds to decode, or holding the interpreter's lock, to open."""
    buffer = io.BytesIO()
    Image.new("RGB", (1024, 1024)).save(buffer, "JPEG", progressive=True)
    jpeg = buffer.getvalue()
    scan = jpeg[jpeg.rindex(b"\xff\xda") : -2]
    small = png(64, 64)
    text = small[33:45].replace(b"IDAT", b"tEXt")
    yield "chunks", small[:33] + text * 20_000 + small[33:]
    for kind in (b"iCCP", b"iTXt", b"zTXt"):
        yield "compressed", small[:33] + text.replace(b"tEXt", kind) * 51 + small[33:]
    yield "segments", jpeg[:2] + b"\xff\xfe\0\4ab" * 20_000 + jpeg[2:]
    yield "bytes", jpeg[:2] + b"\xff" * 200_000 + jpeg[2:]
    for between in (b"", b"\xff\x01", b"\xff\xfe\0\4\xff\xd9"):
        yield "scans", jpeg[:-2] + (between + scan) * 100 + jpeg[-2:]


def test_images_that_are_costly_to_decode_are_rejected(service):
    """The reason says what is too many; progressive images and photos with metadata are taken."""
    for reason, data in costly_images():
        error = error_of(service.post(PATH, json=with_image(data_uri(EncodedImage(data)))), 400)
        assert error["code"] == "invalid_image"
        assert "more than" in error["message"] and reason in error["message"]


def test_images_of_cameras_and_editors_are_accepted():
    picture = Image.effect_noise((256, 256), 100).convert("RGB")
    for form in ("PNG", "JPEG", "WEBP"):
        buffer, exif = io.BytesIO(), b"Exif\0\0" + b"\xff\xda" * 20_000
        picture.save(buffer, form, progressive=form == "JPEG", exif=exif)
        check_image(buffer.getvalue(), "image", 256 * 256)


def test_limits_on_images(home):
    small = data_uri(EncodedImage.white((64, 64)))
    with running_service(home, limits={"pictures": 2, "picture_bytes": 5000}) as service:
        many = [{"type": "input_image", "image_url": small}] * 3
        turns = [{"role": "user", "content": [{"type": "input_text", "text": "Describe"}, *many]}]
        error = error_of(service.post(PATH, json={"input": turns}), 400)
        place = "input.0.content.3.image_url"
        assert (error["code"], error["param"]) == ("too_many_images", place)
        noise = base64.b64encode(png(64, 64) + bytes(6000)).decode()
        large = service.post(PATH, json=with_image(f"data:image/png;base64,{noise}"))
        assert error_of(large, 400)["code"] == "image_file_too_large"


def test_a_body_of_a_hundred_megabytes_is_rejected(service):
    def body():
        yield b'{"input": "'
        for _ in range(100):
            yield b"x" * 2**20

    close = JSON | {"Connection": "close"}
    for content, headers in [(body(), JSON), (bytes(40 * 2**20), close)]:
        answer = httpx.post(service.url + PATH, content=content, headers=headers, timeout=60)
        assert error_of(answer, 413)["code"] == "request_too_large"
    assert service.get("/health").status_code == 200


def test_a_body_that_is_announced_as_too_large_is_rejected_at_once(service):
    """The client may send on to a bound, and sees the response; then the connection ends."""
    for close in ({}, {"Connection": "close"}, {"Expect": "100-continue"}):
        with service.connect() as connection:
            connection.sendall(raw_request(PATH, b"", 2**40, **close))
            assert connection.recv(65_536).startswith(b"HTTP/1.1 413 ")
            sent = 0
            with suppress(ConnectionError):
                while sent < 2**30:
                    connection.sendall(bytes(2**20))
                    sent += 2**20
            assert 100 * 2**20 < sent < 2**28


def test_idle_connections_outlast_those_of_clients(home, monkeypatch):
    """Idle ones last after the time that a head may take; their own time is limited, too."""
    with running_service(home, limits={"read_seconds": 0.1}) as service:
        assert service.server.config.timeout_keep_alive > 60  # uvicorn's own, besides ours
        with httpx.Client() as client:
            own_ends = set()
            for pause in (0, 0.8):
                time.sleep(pause)
                answer = client.get(service.url + "/health")
                stream = answer.extensions["network_stream"]
                own_ends.add(stream.get_extra_info("client_addr"))
            assert len(own_ends) == 1
        monkeypatch.setattr(server, "_KEEP_ALIVE_SECONDS", 0.1)
        with service.connect() as connection:
            connection.sendall(b"GET /health HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
            while connection.recv(65_536):
                pass


def test_bodies_that_are_costly_to_validate_are_rejected(service):
    """With one error, however many there are."""
    fields = [b",".join(b'"f%d":1' % n for n in range(count)) for count in (60_000, 40_000, 17)]
    wide_text = b"x " * 6_300_000 + "\N{SNOWBOARDER}".encode()
    options = b'{"tmax": 1, "t_max": "x"}'
    for body, code, param in [
        (b'{"input": "a cat", ' + fields[0] + b"}", "unknown_parameter", "f0"),
        (b"{" + fields[1] + b"}", "unknown_parameter", "f0"),
        (b'{"input": "' + b"\\u0041" * 1_100_000 + b'"}', "invalid_value", "input"),
        (b'{"input": "' + wide_text + b'"}', "invalid_value", "input"),
        (b'{"input": [' + b"{}," * 49_000 + b"{}]}", "missing_required_parameter", "input.0.role"),
        (b'{"input": "a", "interleave": ' + options + b"}", "unknown_parameter", "interleave.tmax"),
        (b'{"input": "a cat", "metadata": {' + fields[2] + b"}}", "invalid_value", "metadata"),
        (b'{"%s": 1}' % (b"x" * 1_000_000), "unknown_parameter", "x" * 500 + "..."),
    ]:  # fmt: skip
        response = service.post(PATH, content=body, headers=JSON)
        error = error_of(response, 400)
        assert (error["code"], error["param"]) == (code, param) and len(response.content) < 5_000


def test_conversations_are_bounded_together(service):
    """Every part may be short enough, and their number, too."""
    for parts, text in ((1, "x" * 150_000), (1000, "x")):
        content = [{"type": "input_text", "text": text}] * parts
        body = {"input": [{"role": "user", "content": content}] * 15}
        assert error_of(service.post(PATH, json=body), 400)["code"] == "string_above_max_length"


def test_large_bodies_are_parsed_in_another_process(service):
    """The service answers while it is busy, here: stopped."""
    body = b'{"input": "' + b"x" * 2_000_000 + b'"}'
    for path in (PATH, "/studio/reviews"):
        error_of(service.post(path, content=body, headers=JSON), 400)
    [worker] = [each for each in psutil.Process().children() if "anyio" in str(each.cmdline())]
    worker.suspend()
    with ThreadPoolExecutor() as threads:
        answer = threads.submit(service.post, PATH, content=body, headers=JSON)
        wait_until(lambda: open_requests(service) > 1)
        assert service.client().responses.create(input=HOUSE).status == "completed"
        assert not answer.done() and service.get("/health").status_code == 200
        worker.resume()
        error_of(answer.result(), 400)


def test_one_error_is_built_for_many_bad_parts():
    """A list of content parts stops at its first bad one, in both APIs."""
    parts = [{"type": "input_file"}] * 500
    message = {"role": "user", "content": parts}
    for model, content in [
        (ResponsesRequest, {"input": [message] * 500}),
        (ResponsesRequest, {"input": "a cat", "tools": [1] * 500}),
        (ChatRequest, {"messages": [message] * 500}),
        (ChatRequest, {"messages": [message], "stop": [1] * 500}),
    ]:
        with pytest.raises(ValidationError) as raised:
            model.model_validate(content)
        assert raised.value.error_count() < 5


def open_requests(service):
    return service.metrics()["interleave_service_connections"]


@contextmanager
def half_sent(service, length=1000, sent=b'{"input": '):
    with service.connect() as connection:
        connection.sendall(raw_request(PATH, sent, length))
        yield connection


def test_half_sent_heads_and_bodies_time_out(home):
    """Heads also after a complete request on the same connection."""
    with running_service(home, limits={"read_seconds": 0.3}) as service:
        with half_sent(service) as connection:
            answer = b""
            while b'"error"' not in answer:
                part = connection.recv(65_536)
                assert part, answer
                answer += part
            assert b" 408 " in answer.splitlines()[0]
        for before in (b"", b"GET /health HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"):
            with service.connect() as connection:
                connection.sendall(before + b"GET /health HTTP/1.1\r\nHost:")
                while connection.recv(65_536):
                    pass
            assert service.get("/health").status_code == 200


def raw_answer(service, head, segment=2**30):
    """The first line that the service answers to a head sent in segments; it has to close."""
    with service.connect() as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        with suppress(ConnectionError):  # closed while it was still sent
            for start in range(0, len(head), segment):
                connection.sendall(head[start : start + segment])
                time.sleep(0.001 if segment < len(head) else 0)
        received = b""
        with suppress(ConnectionError):
            while part := connection.recv(65_536):
                received += part
    return received.partition(b"\r\n")[0]


def test_bad_heads_are_rejected(service):
    for head in (
        b"Accept: */*\r\n",  # no host
        b"Host: 127.0.0.1\r\nHost: example.com\r\n",
        b"Host: 127.0.0.1\r\n" + b"".join(b"X-%d: 1\r\n" % n for n in range(101)),
    ):
        request = b"GET /health HTTP/1.1\r\nConnection: close\r\n" + head + b"\r\n"
        assert raw_answer(service, request) in (b"HTTP/1.1 400 Bad Request", b"")
        assert service.get("/health").status_code == 200


def test_large_heads_are_rejected_however_they_arrive(service):
    post = b"POST /v1/responses HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
    for head in (
        b"GET /health HTTP/1.1\r\nX-Large: " + b"x" * 70_000,
        b"GET /health HTTP/1.1\r\nX-Large: " + b"x" * 1_000_000,
        b"GET /health HTTP/1.1\r\n" + b"".join(b"X-%d: %01000d\r\n" % (n, n) for n in range(70)),
        b"GET /health?" + b"x" * 70_000 + b" HTTP/1.1\r\nX: 1",
        b"GET /" + b"x" * 70_000 + b" HTTP/1.1\r\nX: 1",
        post + b"Transfer-Encoding: chunked\r\n\r\n0\r\nX-Trailer: " + b"x" * 140_000,
    ):
        request = head + b"\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n"
        for segment in (2**30, 2000):
            answer = raw_answer(service, request, segment)
            assert answer in (b"HTTP/1.1 400 Bad Request", b""), head[:40]


def test_requests_on_one_connection_are_counted_separately(service):
    """The limit on a head's size is none on a connection's requests together."""
    with httpx.Client() as client:
        for _ in range(30):
            padding = {"X-Padding": "x" * 5_000}
            assert client.get(service.url + "/health", headers=padding).status_code == 200
            body = json.dumps({"input": "a cat " * 10_000})
            answer = client.post(service.url + PATH, content=body, headers=JSON | padding)
            assert error_of(answer, 400)["code"] == "string_above_max_length"


def test_small_answers_are_sent_without_delay():
    """Accepted sockets have Nagle's algorithm off, whatever server listens."""
    with (
        listening_socket("127.0.0.1", 0) as listener,
        socket.create_connection(listener.getsockname()),
    ):
        accepted, _ = listener.accept()
        with accepted:
            assert accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)


def test_half_sent_bodies_do_not_block_others_and_are_no_errors(home, caplog):
    with running_service(home) as service, ExitStack() as stack:
        for _ in range(50):
            stack.enter_context(half_sent(service))
        wait_until(lambda: open_requests(service) > 50)
        assert service.client().responses.create(input=HOUSE).status == "completed"
        stack.close()
        wait_until(lambda: open_requests(service) == 1)
        wait_until(lambda: 'status="499"' in service.get("/metrics").text)
    assert not [record for record in caplog.records if record.levelname in ("WARNING", "ERROR")]


def test_the_size_of_all_bodies_is_bounded(home):
    limits = {"bodies": 50_000, "bytes": 40_000}
    with running_service(home, limits=limits) as service, half_sent(service, 40_000, b"x" * 30_000):
        wait_until(lambda: open_requests(service) > 1)
        refused = service.post(PATH, content=b"y" * 30_000, headers=JSON)
        assert error_of(refused, 429)["code"] == "queue_full"
        assert service.client().responses.create(input=HOUSE).status == "completed"


def test_too_many_connections_are_rejected_with_retry_after(home):
    with running_service(home, connections=20) as service, ExitStack() as stack:
        for _ in range(20):
            stack.enter_context(half_sent(service))

        def is_rejected():
            return service.get("/health").status_code == 429

        wait_until(is_rejected)
        refused = service.post(PATH, json={"input": HOUSE})
        assert error_of(refused, 429)["code"] == "too_many_connections"
        assert refused.headers["retry-after"]
        stack.close()
        wait_until(lambda: service.get("/health").status_code == 200)
        assert service.client().responses.create(input=HOUSE).status == "completed"


def test_a_client_that_does_not_read_is_disconnected(home):
    """Its stream is closed; other requests are still served."""
    with running_service(home, stalled_seconds=0.3) as service:
        port = int(service.url.rpartition(":")[2])
        with socket.socket() as connection:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2048)
            connection.connect(("127.0.0.1", port))
            connection.sendall(raw_request(PATH, {"input": SNOWMAN, "stream": True}))
            wait_until(lambda: service.manager.store.search(""))
            wait_until(lambda: not service.manager._runs)
            wait_until(lambda: open_requests(service) == 1)
        assert service.client().responses.create(input=HOUSE).status == "completed"


def test_ids_cannot_be_paths(service):
    for path in ("/v1/responses/..%2f..%2fetc", "/v1/responses/%00", "/v1/responses/' or 1=1"):
        error_of(service.get(path), 404)


def test_invalid_methods_and_parameters(service):
    response = httpx.options(service.url + "/v1/responses/x")
    assert error_of(response, 405) and response.headers["allow"] == "DELETE, GET"
    error = service.get("/v1/chat/completions")
    assert error_of(error, 405) and error.headers["allow"] == "POST"
    error_of(service.get("/v1/responses/x?stream=perhaps"), 400)
    error_of(service.get("/v1/responses/x?starting_after=1e9"), 400)
