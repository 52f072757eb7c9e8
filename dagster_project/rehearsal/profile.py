"""The profile of a rehearsal: a profile's roles, backends, recipes and options with tiny models,
few prompts and no GPU. Everything that is set otherwise is recorded."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, get_args

from assets.core.profile import Profile
from assets.evaluation.items import part_of
from assets.prompts.bank import generate_bank
from assets.prompts.pack_loader import load_pack
from inference.agent_prompts.templates import SUFFIX
from inference.backends.checkpoint.manifest import MANIFEST_FILE, Manifest, PromptName
from inference.backends.images.backend import ImagesSettings

from .models import HUB_ID, TinyModel, registered_generator, tiny_agent, tiny_generator
from .provider import edit_scores
from .rewriter import SIDE, Rewriter, Values, shorten_trainings

REGISTRY = "registry.yaml"
_ROLES = ("planner", "critic", "scorer", "generator")
_HELDOUT_SHARES = (0.5, 0.8, 0.85, 0.9)
_DEV_PROMPTS = 3
_BANK_SHARDS = 12  # where the planner is reinforced, on prompts without trajectories
_VARIANTS = ("generator_only", "full_sft", "full_rl")  # each trained agent in a server of its own


@dataclass
class Rehearsal(Rewriter):
    """Rewrites a profile; its tiny models and their registry are made in `folder`.

    Args:
        provider: address of the local server that stands in for hosted models.
    """

    profile: Profile
    folder: Path
    provider: str
    prompts: int
    _agents: dict[str, Path] = field(default_factory=dict)
    _generators: dict[str, Any] = field(default_factory=dict)

    def rewrite(self) -> Values:
        """The profile as YAML's data; FoundryError where no tiny model can be made."""
        self.values.update(self.profile.model_dump(mode="json"))
        self._sizes()
        self._servers()
        self._dialects()
        for path, backend, model in self._models():
            self._remote(path, backend, model)
        for backend in self.profile.apis:
            self.values[backend]["endpoints"] = [self._hosted(backend)]
        self._local_models()
        if self.profile.training:
            self._start_models(self.values["training"])
            shorten_trainings(self, self.profile.training)
        self._machines()
        return self.values

    def _sizes(self) -> None:
        values = self.values
        values.update({"sizes": {"rehearsal": 1}, "size_changes": {}, "on_gpus": {}})
        self.set("bank", "shard_size", self.prompts, "size")
        values.pop("benchmarks", None)  # run only where they are selected
        values.pop("targets", None)
        values["banks"] = dict.fromkeys(values["banks"], 1)
        if training := values["training"]:
            self._evaluation()
            if training["planner_rl"]:
                self.set("curation.planner", "rl_prompts", 8, "size")
                # Of so few prompts so many are held out, that the next to train on come later.
                values["banks"][load_pack(self.profile.pack).name] = _BANK_SHARDS

    def _evaluation(self) -> None:
        few = {"stories": 6, "verdicts": 6}
        for split in ("heldout", "heldout_category"):
            for name, count in few.items():
                self.lower(f"evaluation.{split}", name, count)
        self.lower("evaluation", "resamples", 200)
        self.set("bank", "heldout_share", self._heldout_share(), "size")
        # Balancing so few verdicts, which are decided by chance, may leave none to train on.
        for balance in ("balance_sft", "balance_rl"):
            self.set(f"curation.critic.{balance}", "mode", "none", "size")
        given = self.values["evaluation"]["variants"]
        if variants := [name for name in given if name in _VARIANTS]:
            self.set("evaluation", "variants", variants, "size")

    def _heldout_share(self) -> float:
        """The smallest with which so few prompts have some that promotion decides by."""
        pack, settings = load_pack(self.profile.pack), self.profile.bank
        for share in (settings.heldout_share, *_HELDOUT_SHARES):
            changed = settings.model_copy(update={"heldout_share": share})
            rows = generate_bank(pack, changed, self.prompts)
            held_out = [row.prompt_id for row in rows if row.split == "heldout"]
            if [part_of("heldout", name) for name in held_out].count("dev") >= _DEV_PROMPTS:
                break
        return share

    def _servers(self) -> None:
        """The same servers on the CPU; another program cannot be given a tiny model."""
        for name, server in list(self.values["servers"].items()):
            path = f"servers.{name}"
            if server["kind"] == "command":
                del self.values["servers"][name]
                self.record(path, server["command"], "the local provider", "model")
                continue
            if server["gpus"]:
                self.set(path, "gpus", [], "gpu")
            if server.pop("ray", None):
                self.record(path, "a node of the Ray cluster", "this machine", "gpu")
            if server["kind"] == "agents":
                for option in ("tensor_parallel", "flags"):
                    if server.get(option):
                        self.set(path, option, None if option != "flags" else [], "gpu")
                if server["model"]:
                    server |= {"model": str(self._agent(server["model"])), "revision": None}
            else:
                self._register(server["model"], server)

    def _models(self) -> list[tuple[str, str, Values]]:
        """Path, backend and settings of every model behind an API."""
        values = self.values
        models = [
            (f"{backend}.{role}", backend, values[backend].get(role))
            for backend in self.profile.apis
            for role in _ROLES
        ]
        models += [
            (path, backend, self.section(path))
            for path, _, backend, _ in self.profile.side_models
            if not path.startswith("benchmarks")  # which are not rehearsed
        ]
        if generator := values["images"]["generator"]:
            models.append(("images.generator.edit", "images", generator.get("edit")))
        return [(path, backend, model) for path, backend, model in models if model]

    def _dialects(self) -> None:
        """Those that follow from an address, which the rehearsal replaces."""
        images = self.profile.section(ImagesSettings)
        for path, model in images.generators():
            if dialect := model.static_dialect(images.endpoints_of(model)):
                self.section(f"images.{path}")["dialect"] = dialect

    def _remote(self, path: str, backend: str, model: Values) -> None:
        """Where a model's calls go: its own server, one that is started by hand, or a provider."""
        if model.get("batch"):
            self.set(path, "batch", False, "model")
        self._prompt_files(path, model.get("agent_prompts") or {})
        endpoints = model["endpoints"] or self.values[backend]["endpoints"]
        name, first = model["model"], endpoints[0]
        if first.get("server") in self.values["servers"]:
            model["endpoints"] = endpoints[:1]
        elif server := self._own_server(backend, name, first):
            model.pop("dialect", None)
            model["endpoints"] = [{"server": server, "concurrency": first["concurrency"]}]
        else:
            model["endpoints"] = [self._hosted(backend)]
            self.record(path, name, f"scripted answers in {backend}'s API", "model")
            if backend == "gemini" and "size" in model:
                model["size"] = None
            return
        if backend == "openai":
            model["model"] = self._agent(name).name
            self.values["prices"].setdefault(model["model"], self.values["prices"].get(name, {}))
        elif name != "sketch" and model["size"]:
            self.set(path, "size", f"{SIDE}x{SIDE}", "size")

    def _prompt_files(self, path: str, prompts: dict[str, str]) -> None:
        """Our prompts instead of files that a user has not imported."""
        for name, prompt in list(prompts.items()):
            if prompt.endswith(SUFFIX) and not Path(prompt).is_file():
                self.record(f"{path}.agent_prompts.{name}", prompt, "ours", "model")
                del prompts[name]

    def _own_server(self, backend: str, model: str, endpoint: Values) -> str | None:
        """A server for a model that is served by hand; None: it is hosted."""
        if not endpoint.get("url") or backend == "gemini":
            return None
        known = registered_generator(model)
        if backend == "images" and (model == "sketch" or (known and known.pipeline)):
            server: Values = {"kind": "images", "model": model, "gpus": []}
            self._register(model, server)
        elif backend == "openai" and HUB_ID.fullmatch(model):
            server = {"kind": "agents", "model": str(self._agent(model)), "gpus": []}
        else:
            return None
        name = f"rehearsed-{backend}-{Path(model).name}"
        self.values["servers"][name] = server
        self.record(f"{backend}.endpoints", endpoint["url"], "started by the rehearsal", "gpu")
        return name

    def _hosted(self, backend: str) -> Values:
        return {"url": self.provider + ("" if backend == "gemini" else "/v1"), "concurrency": 16}

    def _agent(self, model: str, revision: str | None = None) -> Path:
        """Folder of the tiny model that stands for a planner or critic."""
        if model not in self._agents:
            folder = self.folder / "models" / Path(model).name
            self._agents[model] = self._record_model(model, tiny_agent(folder, model, revision))
        return self._agents[model]

    def _register(self, model: str, settings: Values) -> None:
        """Make a tiny generator, and name a registry that has it under the same name."""
        if model == "sketch":
            return
        extra = settings.get("registry")
        if model not in self._generators:
            folder = self.folder / "models" / Path(model).name
            made = tiny_generator(folder, model, extra and Path(extra))
            self._record_model(model, made)
            known = registered_generator(model, extra and Path(extra))
            entry = known.model_dump(mode="json") if known else {}
            if entry.get("lora"):
                self.record(model, "its LoRA", "none", "model")
            changes = {"model": str(folder), "revision": None, "lora": None, "gated": False}
            self._generators[model] = entry | changes
        if self._generators[model].get("title"):  # else a folder, which has no entry
            settings["registry"] = str(self.folder / REGISTRY)
        else:
            settings["model"] = self._generators[model]["model"]

    def _local_models(self) -> None:
        """Models in this process."""
        values, roles = self.values, self.profile.roles
        if "diffusers" in self.profile.generators:
            self._local_generator("diffusers", values["diffusers"])
            if edit := values["diffusers"].get("edit"):
                self._local_generator("diffusers.edit", edit)
        members = self.profile.ensemble.members if self.profile.ensemble else {}
        if "editscore" in (roles.scorer, *members):
            scorer = values["editscore"]
            folder = self.folder / "models" / "editscore"
            made = tiny_agent(folder, scorer["model"], scorer["revision"], edit_scores())
            self._record_model("editscore", made)
            scorer |= {"model": str(folder), "revision": None, "adapter": None, "device": "cpu"}
        self._checkpoints(values["checkpoint"])

    def _local_generator(self, path: str, settings: Values) -> None:
        self._register(settings["model"], settings)
        settings["device"] = "cpu"
        self.set(path, "size", f"{SIDE}x{SIDE}", "size")

    def _checkpoints(self, settings: Values) -> None:
        settings["device"] = "cpu"
        if prompts := settings["agent_prompts"]:
            self._prompt_files("checkpoint", prompts)
            ours = {name: name.replace("_", "-") for name in get_args(PromptName)}
            settings["agent_prompts"] = ours | prompts
        for role in ("planner", "critic"):
            if getattr(self.profile.roles, role) == "checkpoint":
                is_foreign = settings["agent_prompts"] and HUB_ID.fullmatch(settings[role] or "")
                made = self._agent(settings[role]) if is_foreign else self._checkpoint()
                settings[role] = str(made)

    def _checkpoint(self) -> Path:
        """A tiny planner and critic, as a trained one."""
        folder = self._agent("trained-agent")
        if not (folder / MANIFEST_FILE).is_file():
            manifest = Manifest(
                name="rehearsal",
                version="1",
                role="both",
                agent_prompts={
                    "critic": "critic@1",
                    "planner_text": "planner-text@1",
                    "planner_interleaved": "planner-interleaved@1",
                },
                image_max_pixels=SIDE**2,
                max_new_tokens={"planner": 64, "critic": 64},
            )
            (folder / MANIFEST_FILE).write_text(manifest.model_dump_json(), "utf-8")
        return folder

    def _start_models(self, training: Values) -> None:
        base = training["base_model"]
        name = base["model"] or f"the {base['source']} base model"
        folder = self._agent(name, base["revision"])
        base |= {"source": "huggingface", "model": str(folder), "revision": None}
        for role in ("planner_sft", "critic_sft", "planner_rl", "critic_rl"):
            if start := (training[role] or {}).get("start"):
                tiny = self._agent(start["model"], start["revision"])
                training[role]["start"] = {"model": str(tiny), "revision": None}

    def _machines(self) -> None:
        if self.profile.cluster:
            self.record("cluster", "Ray, Postgres", "this process", "gpu")
        if self.profile.notifications:
            self.record("notifications", "sent", "nobody is told", "model")
        self.values.update({"cluster": None, "notifications": None})

    def _record_model(self, name: str, made: TinyModel) -> Path:
        after = f"tiny {made.kind}" + (f" ({made.note})" if made.note else "")
        self.record("models", name, after, "model")
        return made.folder

    @property
    def registry(self) -> Values:
        """Tiny generators by their names; a file of the form of `registry.yaml`."""
        return {"models": {n: e for n, e in self._generators.items() if e.get("title")}}
