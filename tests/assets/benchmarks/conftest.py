"""A judge behind OpenAI's API, and a profile that uses it."""

import json
import threading
import time
from collections import Counter
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
import yaml

from assets.benchmarks.opening import CRITERIA
from assets.core.profile import FOLDER, load_profile

UNREADABLE = "an item that no judge can grade"


class Judge(ThreadingHTTPServer):
    """Grades every criterion with 7, after `seconds`; at first not at all where it `hesitates`."""

    def __init__(self):
        super().__init__(("127.0.0.1", 0), _Handler)
        self.asked, self.hesitates, self.says, self.seconds = Counter(), False, "", 0.0
        self.url = f"http://127.0.0.1:{self.server_address[1]}/v1"

    def answer(self, request):
        texts = json.dumps(request)
        self.asked[texts] += 1
        time.sleep(self.seconds)
        if self.says:
            return self.says
        is_second = any(message["role"] == "assistant" for message in request["messages"])
        if UNREADABLE in texts or (self.hesitates and not is_second):
            return "It is good."
        return json.dumps({name: {"reason": "so", "score": 7} for name in CRITERIA})


class _Handler(BaseHTTPRequestHandler):
    def do_POST(self):
        request = json.loads(self.rfile.read(int(self.headers["content-length"])))
        message = {"role": "assistant", "content": self.server.answer(request)}
        choice = {"index": 0, "finish_reason": "stop", "message": message}
        content = {"id": "1", "object": "chat.completion", "created": 0, "model": "m"}
        usage = {"prompt_tokens": 1000, "completion_tokens": 100, "total_tokens": 1100}
        data = json.dumps(content | {"choices": [choice], "usage": usage}).encode()
        self.send_response(200)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *_):
        pass


@pytest.fixture
def judge():
    with Judge() as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        yield server
        server.shutdown()
        thread.join()


@pytest.fixture
def profile(judge, tmp_path):
    content = yaml.safe_load((FOLDER / "sketch.yaml").read_text())
    content["openai"] = {"endpoints": [{"url": judge.url}]}
    content["prices"] = {"m": {"input": 1.0, "output": 10.0}}
    path = tmp_path / "profile.yaml"
    path.write_text(yaml.safe_dump(content))
    load_profile.cache_clear()
    return path
