"""A judge behind OpenAI's API, and a profile that uses it."""

import json
import threading
import time
from collections import Counter
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from assets.benchmarks.opening import CRITERIA
from tests.helpers.profiles import changed_profile

UNREADABLE = "an item that no judge can grade"


class JsonServer(ThreadingHTTPServer):
    """Answers every POST with what `reply` makes of its path and text."""

    def __init__(self):
        super().__init__(("127.0.0.1", 0), _Handler)
        self.url = f"http://127.0.0.1:{self.server_address[1]}"

    def reply(self, path, text):
        raise NotImplementedError


class Judge(JsonServer):
    """Grades every criterion with 7, after `seconds`; at first not at all where it `hesitates`."""

    def __init__(self):
        super().__init__()
        self.asked, self.hesitates, self.says, self.seconds = Counter(), False, "", 0.0

    def reply(self, path, text):
        request = json.loads(text)
        self.asked[json.dumps(request)] += 1
        time.sleep(self.seconds)
        return chat_completion(self.says or self._grades(text, request["messages"]))

    def _grades(self, text, messages):
        is_second = any(message["role"] == "assistant" for message in messages)
        if UNREADABLE in text or (self.hesitates and not is_second):
            return "It is good."
        return json.dumps({name: {"reason": "so", "score": 7} for name in CRITERIA})


def chat_completion(text):
    choice = {
        "index": 0,
        "finish_reason": "stop",
        "message": {"role": "assistant", "content": text},
    }
    usage = {"prompt_tokens": 1000, "completion_tokens": 100, "total_tokens": 1100}
    content = {"id": "1", "object": "chat.completion", "created": 0, "model": "m"}
    return content | {"choices": [choice], "usage": usage}


class _Handler(BaseHTTPRequestHandler):
    def do_POST(self):
        text = self.rfile.read(int(self.headers["content-length"])).decode()
        data = json.dumps(self.server.reply(self.path, text)).encode()
        self.send_response(200)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *_):
        pass


@contextmanager
def serving(server):
    with server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        yield server
        server.shutdown()
        thread.join()


@pytest.fixture
def judge():
    with serving(Judge()) as server:
        yield server


@pytest.fixture
def profile(judge, tmp_path):
    endpoints = [{"url": f"{judge.url}/v1"}]
    prices = {"m": {"input": 1.0, "output": 10.0}}
    return changed_profile(tmp_path, openai={"endpoints": endpoints}, prices=prices)
