"""What the lineage reads from elsewhere, as external assets: the files, data sets and base model
that the profile names. Their versions are observed: in the UI, by the schedule `observe_sources`,
and by `interleave run` before it materializes what reads them."""

import warnings
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

import dagster as dg

from assets.core.additions import additions
from assets.core.foundry import FoundryResource
from assets.core.node import DATA_VERSION_TAG, Node
from assets.core.profile import Profile
from assets.hub.repository import Repository
from inference.calls.hashing import content_digest
from inference.generation.files import file_version
from schemas import FoundryError
from schemas.training import BASE_MODEL
from warehouse.storage import storage_errors
from warehouse.verify import file_sha256

warnings.filterwarnings("ignore", ".*observable_source_asset", dg.BetaWarning)
_HASHED_BYTES = 1 << 24  # larger files, such as weights, count by name and size
_DATASETS = "datasets/"


class Source(NamedTuple):
    """A file or folder here, a URL, or a repository of the Hub.

    Args:
        path: of its setting in the profile.
        reader: name of the asset that reads it.
        revision: of a repository, as a commit; None: its newest one.
    """

    path: tuple[str, ...]
    location: str
    reader: str
    revision: str | None = None

    @property
    def key(self) -> dg.AssetKey:
        return dg.AssetKey(self.path)

    @property
    def is_local(self) -> bool:
        """Whether its version is known without a request."""
        return Path(self.location).expanduser().exists() or self.revision is not None

    @property
    def is_repository(self) -> bool:
        return "://" not in self.location and not self.location.startswith(("/", ".", "~"))

    def version(self) -> str:
        """A hash of its content, or its commit; FoundryError: it is not available."""
        path = Path(self.location).expanduser()
        if path.exists():
            with storage_errors("read", path):
                return _content_version(path)
        if self.revision:
            return self.revision
        if self.is_repository:
            return _newest_commit(self.location)
        if version := file_version(self.location):
            return version
        raise FoundryError(f"{self.location} is not available: correct it in the profile")


def sources_of(foundry: FoundryResource) -> list[Source]:
    """Those that the profile names, but for entries of components, which are assets of their own.

    Of a profile that cannot be read none: that is the business of the run that needs it.
    """
    try:
        profile = foundry.settings
    except FoundryError:
        return []
    added = [tuple(each.asset_key) for each in additions()]
    return [source for source in _named(profile) if source.path not in added]


def _named(profile: Profile) -> Iterator[Source]:
    for name, each in profile.imports.items():
        yield Source(("imports", name), each.file, "imports")
    for name, run in profile.benchmarks.run.items() if profile.benchmarks else ():
        if run.source:
            yield Source(("benchmarks", name), run.source, "benchmark_answers")
    if profile.generations and (requests := profile.generations.requests):
        yield Source(("generations", "requests"), requests, "generations")
    base = profile.training and profile.training.base_model
    if base and base.source == "huggingface" and base.model:
        yield Source(("training", "base_model"), base.model, BASE_MODEL, base.revision)


def observed_sources(foundry: FoundryResource) -> dg.Definitions:
    """The external assets, and a schedule that observes them; nothing where there are none."""
    sources = sources_of(foundry)
    if not sources:
        return dg.Definitions()
    nightly = dg.ScheduleDefinition(
        name="observe_sources",
        target=dg.AssetSelection.assets(*(source.key for source in sources)),
        cron_schedule="0 2 * * *",
        execution_timezone="UTC",
        description="Every night: the versions of what the profile names elsewhere.",
    )
    return dg.Definitions(assets=[_observed(each) for each in sources], schedules=[nightly])


def _observed(source: Source) -> dg.SourceAsset:
    @dg.observable_source_asset(
        key=source.key,
        description=f"`{'.'.join(source.path)}` of the profile: {source.location}",
        group_name="sources",
    )
    def observe() -> dg.DataVersion:
        return dg.DataVersion(source.version())

    return observe


def observe_local(
    foundry: FoundryResource, instance: dg.DagsterInstance, nodes: Sequence[Node]
) -> None:
    """Store the versions of what some nodes are about to read, where no request is needed."""
    names = {node.name for node in nodes}
    for source in sources_of(foundry):
        if source.reader in names and source.is_local:
            with suppress(FoundryError):  # the reader says what is wrong
                tags = {DATA_VERSION_TAG: source.version()}
                event = dg.AssetObservation(source.key, tags=tags)
                instance.report_runless_asset_event(event)


def _content_version(path: Path) -> str:
    """Hash (16 hex digits) of a file, or of the files of a folder with their names."""
    if path.is_file():
        return file_sha256(path)[:16]
    files = sorted(each for each in path.rglob("*") if each.is_file())
    return content_digest([[str(f.relative_to(path)), _file_version(f)] for f in files])[:16]


def _file_version(path: Path) -> str | int:
    size = path.stat().st_size
    return file_sha256(path) if size <= _HASHED_BYTES else size


def _newest_commit(location: str) -> str:
    """Of `datasets/OWNER/NAME[@REVISION]/FILE`, or of the data set `OWNER/NAME`."""
    owner, name = (*location.removeprefix(_DATASETS).split("/"), "")[:2]
    name, _, revision = name.partition("@")
    return Repository.named(f"{owner}/{name}", "dataset").commit(revision or "main")
