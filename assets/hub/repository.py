"""Repositories of the Hugging Face Hub: what is there, what is missing, and one commit of it.

The token is that of `HF_TOKEN` alone, never one that another tool has stored; `HF_ENDPOINT` names
another server that speaks the Hub's API. Both are read by `huggingface_hub`, which does the work.
"""

import hashlib
import os
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatch
from functools import cached_property
from json import JSONDecodeError
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from tenacity import Retrying, retry_if_exception, stop_after_attempt, wait_random_exponential

from schemas import FoundryError
from warehouse.verify import file_sha256

if TYPE_CHECKING:
    from huggingface_hub import HfApi
    from huggingface_hub.hf_api import RepoFile

Kind = Literal["dataset", "model"]

_DATASETS = "datasets/"
_SECONDS = 60.0  # without a byte from the Hub
_TRIES = 3
_MEANINGS = {
    401: "the Hub refused the token: set HF_TOKEN to a valid one",
    403: "HF_TOKEN may not do this: use a token that may write to the repository",
    404: "it, or this revision of it, does not exist",
    412: "somebody else has pushed meanwhile: push again",
    429: "the Hub limits our requests (429): wait some minutes and try again",
}
# Files of an earlier push that would be read beside the new ones.
_REPLACED = {"dataset": "data/*", "model": "*.safetensors*"}


class HubError(FoundryError):
    """The Hub refused a request or could not be reached; the message says what to do."""


@dataclass(frozen=True)
class Transfer:
    """A file to upload or download, unless it is there already."""

    path: str
    size: int
    present: bool


@dataclass(frozen=True)
class PushPlan:
    """What a push would do: `head` is the newest commit (None: no such repository)."""

    head: str | None
    public: bool
    files: list[Transfer]
    deleted: list[str] = field(default_factory=list)

    @property
    def missing(self) -> list[Transfer]:
        return [each for each in self.files if not each.present]


@dataclass(frozen=True)
class Repository:
    """A repository of data sets or of a model; its API calls raise HubError."""

    id: str
    kind: Kind

    @classmethod
    def named(cls, reference: str, kind: Kind | None = None) -> "Repository":
        """Of `owner/name`, or `datasets/owner/name`, as in the Hub's addresses.

        Raises FoundryError: it is none of these.
        """
        name = reference.removeprefix(_DATASETS)
        if name.count("/") != 1 or not all(name.split("/")):
            raise FoundryError(
                f"{reference!r} is not a repository of the Hub: write owner/name, for data sets "
                "datasets/owner/name"
            )
        return cls(name, kind or ("dataset" if name != reference else "model"))

    def __str__(self) -> str:
        return f"{_DATASETS if self.kind == 'dataset' else ''}{self.id}"

    def compare(self, files: Mapping[str, Path | bytes]) -> PushPlan:
        """What is missing of `files` (path in the repository -> file or content)."""
        info = self._info()
        stored = {each.path: each for each in self.files(info.sha)} if info else {}
        transfers = [
            Transfer(path, _size(content), path in stored and _is_same(stored[path], content))
            for path, content in files.items()
        ]
        replaced = [path for path in stored if fnmatch(path, _REPLACED[self.kind])]
        deleted = sorted(set(replaced) - set(files))
        public = info is not None and not info.private
        return PushPlan(info and info.sha, public, transfers, deleted)

    def upload(
        self, files: Mapping[str, Path | bytes], plan: PushPlan, public: bool, message: str
    ) -> str:
        """Make `plan` true in one commit, so that nobody sees a part of it; the commit's id.

        What an interrupted upload has stored on the Hub is not sent again.
        """
        from huggingface_hub import CommitOperationAdd, CommitOperationDelete

        api, kind = self._api, self.kind
        if plan.head is None:
            visibility = {"private": not public, "exist_ok": True}
            self._retried(api.create_repo, self.id, repo_type=kind, **visibility)
        paths = [each.path for each in plan.missing]
        add = [CommitOperationAdd(path, _operand(files[path])) for path in paths]
        delete = [CommitOperationDelete(path) for path in plan.deleted]
        commit = self._retried(
            api.create_commit,
            self.id,
            repo_type=kind,
            operations=[*add, *delete],
            commit_message=message,
            parent_commit=plan.head,
        )
        return str(commit.oid)

    def commit(self, revision: str) -> str:
        """The commit that a branch, tag or commit stands for."""
        info = self._info(revision)
        if info is None:
            other = str(Repository(self.id, "model" if self.kind == "dataset" else "dataset"))
            raise HubError(
                f"{self} does not exist, or HF_TOKEN may not see it; {other} would be another one"
            )
        return str(info.sha)

    def files(self, commit: str) -> list["RepoFile"]:
        """Files of a commit, with their sizes and hashes."""
        from huggingface_hub.hf_api import RepoFile

        at: dict[str, Any] = {"revision": commit, "repo_type": self.kind, "recursive": True}
        tree = self._retried(lambda: [*self._api.list_repo_tree(self.id, **at)])
        return [each for each in tree if isinstance(each, RepoFile)]

    def download(self, commit: str, folder: Path) -> None:
        """Bring `folder` to the files of a commit; complete ones of a killed download stay."""
        from huggingface_hub import snapshot_download

        expected = self.files(commit)
        self._retried(
            snapshot_download,
            self.id,
            repo_type=self.kind,
            revision=commit,
            local_dir=folder,
            token=_token(),
            max_workers=4,
        )
        # snapshot_download returns what there is when the Hub stops answering
        for each in expected:
            path = folder / each.path
            if not path.is_file() or path.stat().st_size != each.size:
                raise HubError(f"{self}: {each.path} was not downloaded; pull again to continue")

    def _info(self, revision: str | None = None) -> Any:
        """The repository as the Hub describes it; None: it does not exist."""
        from huggingface_hub.errors import RepositoryNotFoundError

        def info() -> Any:
            try:
                return self._api.repo_info(
                    self.id, repo_type=self.kind, revision=revision, timeout=_SECONDS
                )
            except RepositoryNotFoundError:
                return None

        return self._retried(info)

    def _retried(self, call: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
        """What the client's call returns; tried again where the Hub has a passing problem."""
        from httpx2 import HTTPError
        from huggingface_hub.errors import HFValidationError

        retrying = Retrying(
            stop=stop_after_attempt(_TRIES),
            wait=wait_random_exponential(1, max=20),
            retry=retry_if_exception(_is_transient),
            reraise=True,
        )
        try:
            return retrying(call, *arguments, **options)
        except (HFValidationError, ValueError, RuntimeError, OSError, HTTPError) as error:
            raise HubError(f"{self}: {_meaning(error)}") from error

    @cached_property
    def _api(self) -> "HfApi":
        from huggingface_hub import HfApi
        from huggingface_hub.utils import disable_progress_bars, get_session

        get_session().timeout = _SECONDS
        if not sys.stderr.isatty():
            disable_progress_bars()
        return HfApi(token=_token(), library_name="interleave-foundry")


def _token() -> str | Literal[False]:
    return os.environ.get("HF_TOKEN", "").strip() or False


def _status(error: BaseException | None) -> int | None:
    """HTTP status of an error of the Hub, or of the one that caused it."""
    while error is not None:
        if (response := getattr(error, "response", None)) is not None:
            return int(response.status_code)
        error = error.__cause__
    return None


def _is_transient(error: BaseException) -> bool:
    from httpx2 import TransportError

    status = _status(error)
    no_answer = isinstance(error, TransportError | JSONDecodeError)
    return status == 429 or (status or 0) >= 500 or no_answer


def _meaning(error: Exception) -> str:
    """What an error of the Hub's client means for a user, in one line."""
    status = _status(error)
    if status in _MEANINGS:
        return _MEANINGS[status]
    if status is not None and status >= 500:
        return f"the Hub has a problem ({status}): try again later, what is done stays"
    if isinstance(error, JSONDecodeError):
        return "the Hub did not answer in its API's form: check HF_ENDPOINT, or try again later"
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    reason = lines[0] if lines else type(error).__name__
    return f"{reason}; try again, what is done stays"


def _size(content: Path | bytes) -> int:
    return len(content) if isinstance(content, bytes) else content.stat().st_size


def _operand(content: Path | bytes) -> str | bytes:
    """A path as its target: a checkpoint's weights may be links."""
    return content if isinstance(content, bytes) else str(content.resolve())


def _is_same(stored: "RepoFile", content: Path | bytes) -> bool:
    from huggingface_hub.utils.sha import git_hash

    if stored.size != _size(content):
        return False
    if stored.lfs is None:
        data = content if isinstance(content, bytes) else content.read_bytes()
        return bool(stored.blob_id == git_hash(data))
    if isinstance(content, bytes):
        return bool(stored.lfs.sha256 == hashlib.sha256(content).hexdigest())
    return bool(stored.lfs.sha256 == file_sha256(content))
