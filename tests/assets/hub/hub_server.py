"""A server that speaks the Hub's API as far as its official clients need it to push and pull.

Repositories of models and data sets, git-like commits, LFS uploads, `resolve` with ETag and ranges.
It has no Xet storage, so clients run with HF_HUB_DISABLE_XET.
"""

import base64
import hashlib
import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import uvicorn
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from tests.helpers.ports import free_port

TOKEN = "hf_valid"
_LFS = (".parquet", ".safetensors")
_KINDS = {"models": "", "datasets": "datasets/"}


@dataclass
class Repo:
    private: bool
    commits: dict[str, dict[str, bytes]] = field(default_factory=dict)  # id -> path -> content

    def __post_init__(self) -> None:
        self.commit({".gitattributes": b"*.parquet filter=lfs\n"})

    @property
    def head(self) -> str:
        return list(self.commits)[-1]

    def commit(self, files: dict[str, bytes]) -> str:
        sha = hashlib.sha1(f"{len(self.commits)}{sorted(files)}".encode()).hexdigest()
        self.commits[sha] = files
        return sha


@dataclass
class Hub:
    """What the server has, and how it misbehaves.

    Args:
        uploads, downloads: sha256 of contents sent to it, paths of files read from it.
        failures: (part of a path, status) of requests that fail.
        held: part of a path; such requests wait until the server ends.
    """

    url: str
    repos: dict[str, Repo] = field(default_factory=dict)  # `models/owner/name` -> repository
    blobs: dict[str, bytes] = field(default_factory=dict)
    uploads: list[str] = field(default_factory=list)
    downloads: list[str] = field(default_factory=list)
    failures: list[tuple[str, int]] = field(default_factory=list)
    held: str = ""
    waiting: threading.Event = field(default_factory=threading.Event)
    ended: threading.Event = field(default_factory=threading.Event)

    def repo(self, request: Request) -> Repo:
        path = request.path_params
        repo = self.repos.get(f"{path['kind']}/{path['owner']}/{path['name']}")
        if repo is None or (repo.private and not _is_authorized(request)):
            raise _ProblemError(401 if not _is_authorized(request) else 404, "RepoNotFound")
        return repo

    def commit_of(self, repo: Repo, revision: str) -> str:
        sha = repo.head if revision == "main" else revision
        if sha not in repo.commits:
            raise _ProblemError(404, "RevisionNotFound")
        return sha

    def wait_while_held(self, what: str) -> None:
        if self.held and self.held in what:
            self.waiting.set()
            self.ended.wait()


class _ProblemError(Exception):
    def __init__(self, status: int, code: str = "", message: str = "") -> None:
        super().__init__(code)
        headers = {"X-Error-Code": code, "X-Error-Message": message}
        self.response = JSONResponse(
            {"error": message or code}, status, {k: v for k, v in headers.items() if v}
        )


@contextmanager
def hub_server() -> Iterator[Hub]:
    port = free_port()
    hub = Hub(f"http://127.0.0.1:{port}")
    config = uvicorn.Config(_app(hub), port=port, log_level="error", timeout_graceful_shutdown=1)
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    while not server.started:
        time.sleep(0.01)
    try:
        yield hub
    finally:
        hub.ended.set()
        server.should_exit = True
        thread.join(10)


def _app(hub: Hub) -> Starlette:
    api = "/api/{kind}/{owner}/{name}"

    def route(path: str, answer: Any, method: str, kind: str = "") -> Route:
        async def endpoint(request: Request) -> Response:
            body = await request.body()
            request.path_params.setdefault("kind", kind)
            try:
                _check(hub, request)
                return await run_in_threadpool(answer, hub, request, body)
            except _ProblemError as problem:
                return problem.response

        return Route(path, endpoint, methods=[method])

    routes = [
        route("/api/repos/create", _create, "POST"),
        route("/api/validate-yaml", lambda *_: JSONResponse({"warnings": []}), "POST"),
        route(api, _info, "GET"),
        route(api + "/revision/{revision}", _info, "GET"),
        route(api + "/tree/{revision}", _tree, "GET"),
        route(api + "/preupload/{revision}", _preupload, "POST"),
        route(api + "/commit/{revision}", _commit, "POST"),
        route("/lfs/{oid}", _put, "PUT"),
    ]
    for kind, prefix in _KINDS.items():
        named = f"/{prefix}{{owner}}/{{name}}"
        routes += [
            route(f"{named}.git/info/lfs/objects/batch", _batch, "POST", kind),
            route(f"{named}/resolve/{{revision}}/{{path:path}}", _resolve, "GET", kind),
        ]
    return Starlette(routes=routes[::-1])  # `datasets/` before owners


def _check(hub: Hub, request: Request) -> None:
    for part, status in hub.failures:
        if part in request.url.path:
            raise _ProblemError(status)
    given = request.headers.get("authorization")
    if given and given != f"Bearer {TOKEN}":
        raise _ProblemError(401, message="Invalid credentials in Authorization header")


def _is_authorized(request: Request) -> bool:
    return request.headers.get("authorization") == f"Bearer {TOKEN}"


def _create(hub: Hub, request: Request, body: bytes) -> Response:
    given = json.loads(body)
    if not _is_authorized(request):
        raise _ProblemError(401)
    if given["organization"] == "others":
        raise _ProblemError(403, message="You don't have the rights to create a repository here")
    name = f"{given['organization']}/{given['name']}"
    key = f"{given.get('type') or 'model'}s/{name}"
    url = {"url": f"{hub.url}/{_KINDS[key.split('/')[0]]}{name}"}
    if key in hub.repos:
        return JSONResponse(url, 409)
    hub.repos[key] = Repo(
        private=given.get("visibility") == "private" or bool(given.get("private"))
    )
    return JSONResponse(url)


def _info(hub: Hub, request: Request, _body: bytes) -> Response:
    repo = hub.repo(request)
    sha = hub.commit_of(repo, request.path_params.get("revision", "main"))
    name = "{owner}/{name}".format_map(request.path_params)
    siblings = [{"rfilename": path} for path in repo.commits[sha]]
    return JSONResponse({"id": name, "sha": sha, "private": repo.private, "siblings": siblings})


def _entry(path: str, content: bytes) -> dict[str, Any]:
    git = hashlib.sha1(f"blob {len(content)}\0".encode() + content).hexdigest()
    entry = {"type": "file", "path": path, "size": len(content), "oid": git}
    if path.endswith(_LFS):
        sha256 = hashlib.sha256(content).hexdigest()
        entry["lfs"] = {"oid": sha256, "size": len(content), "pointerSize": 134}
    return entry


def _tree(hub: Hub, request: Request, _body: bytes) -> Response:
    repo = hub.repo(request)
    files = repo.commits[hub.commit_of(repo, request.path_params["revision"])]
    return JSONResponse([_entry(path, content) for path, content in files.items()])


def _preupload(hub: Hub, request: Request, body: bytes) -> Response:
    repo = hub.repo(request)
    files = repo.commits[repo.head]
    answers = []
    for given in json.loads(body)["files"]:
        path = given["path"]
        answer = {"path": path, "shouldIgnore": False}
        answer["uploadMode"] = "lfs" if path.endswith(_LFS) else "regular"
        if path in files:
            entry = _entry(path, files[path])
            answer["oid"] = entry.get("lfs", entry)["oid"]
        answers.append(answer)
    return JSONResponse({"files": answers})


def _batch(hub: Hub, request: Request, body: bytes) -> Response:
    hub.repo(request)
    objects = json.loads(body)["objects"]
    for each in objects:
        if each["oid"] not in hub.blobs:
            each["actions"] = {"upload": {"href": f"{hub.url}/lfs/{each['oid']}"}}
    return JSONResponse({"transfer": "basic", "objects": objects})


def _put(hub: Hub, request: Request, body: bytes) -> Response:
    oid = request.path_params["oid"]
    assert hashlib.sha256(body).hexdigest() == oid
    if len(hub.uploads) >= 1:
        hub.wait_while_held("upload")
    hub.uploads.append(oid)
    hub.blobs[oid] = body
    return Response()


def _commit(hub: Hub, request: Request, body: bytes) -> Response:
    repo = hub.repo(request)
    if not _is_authorized(request):
        raise _ProblemError(403)
    lines = [json.loads(line) for line in body.splitlines()]
    files = dict(repo.commits[repo.head])
    for line in lines:
        value = line["value"]
        match line["key"]:
            case "header":
                if value.get("parentCommit", repo.head) != repo.head:
                    raise _ProblemError(412, message="A commit has happened since")
            case "file":
                files[value["path"]] = base64.b64decode(value["content"])
            case "lfsFile":
                files[value["path"]] = hub.blobs[value["oid"]]
            case "deletedFile":
                del files[value["path"]]
            case other:
                raise AssertionError(other)
    sha = repo.commit(files)
    path = request.path_params
    page = f"{hub.url}/{_KINDS[path['kind']]}{path['owner']}/{path['name']}/commit/{sha}"
    return JSONResponse({"commitUrl": page, "commitOid": sha})


def _resolve(hub: Hub, request: Request, _body: bytes) -> Response:
    repo, path = hub.repo(request), request.path_params["path"]
    sha = hub.commit_of(repo, request.path_params["revision"])
    headers = {"X-Repo-Commit": sha, "Accept-Ranges": "bytes"}
    if path not in repo.commits[sha]:
        raise _ProblemError(404, "EntryNotFound")
    content = repo.commits[sha][path]
    entry = _entry(path, content)
    headers["ETag"] = f'"{entry.get("lfs", entry)["oid"]}"'
    if request.method == "HEAD":
        return Response(headers=headers | {"Content-Length": str(len(content))})
    hub.wait_while_held(path)
    hub.downloads.append(path)
    if given := request.headers.get("range"):
        start, _, end = given.removeprefix("bytes=").partition("-")
        last = min(int(end), len(content) - 1) if end else len(content) - 1
        headers["Content-Range"] = f"bytes {start}-{last}/{len(content)}"
        return Response(content[int(start) : last + 1], 206, headers)
    return Response(content, headers=headers)
