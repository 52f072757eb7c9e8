"""The backend `editscore`: an open edit-reward model in this process."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from schemas.trajectories import Role
from warehouse import Home

from ..backend import Backends, BackendSettings, Finding, register
from .loading import EditScoreSettings, missing_requirements


@register
class EditScoreBackend(EditScoreSettings, BackendSettings):
    """An open edit-reward model in this process."""

    backend = "editscore"
    summary = "An open reward model in this process, where `roles` or `ensemble` names it"
    plays = ("scorer",)

    def build(self, roles: Sequence[Role], backends: Backends, home: Home) -> Mapping[Any, Any]:
        from .scorer import EditScoreScorer

        return {"scorer": EditScoreScorer(self)}

    def check(self, backends: Backends, home: Home) -> Iterator[Finding]:
        from .scorer import prompt_texts

        reasons = ", ".join(missing_requirements(self))
        fix = f"{reasons}; weights are downloaded for the first attempt" if reasons else None
        is_pinned = self.adapter is None or self.adapter_revision
        note = "" if is_pinned else ", not pinned: name a commit in `editscore.adapter_revision`"
        yield Finding(f"scorer {self.adapter or self.model}{note}", fix)
        yield Finding.resolved("wording of editscore", lambda: prompt_texts(self).origin)
