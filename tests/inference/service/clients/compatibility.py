"""The clients whose calls are tested, how each call ends, and the tables that say so.

`outcomes.json` has the outcomes: client -> call -> `works`, `refused: FIELD` or `not offered`.
Run as a program after a change of it, this writes the tables of docs/clients.md.
"""

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

FOLDER = Path(__file__).parent
ROOT = FOLDER.parents[3]
PAGE = ROOT / "docs" / "clients.md"
BEGIN = "<!-- From here on written by tests. -->"


@dataclass(frozen=True)
class Client:
    """A client. `pins`: name of its requirements (Python) or its npm folder."""

    title: str
    package: str
    pins: str
    script: str

    @property
    def is_node(self) -> bool:
        return self.script.endswith(".mjs")

    @property
    def requirements(self) -> Path:
        if self.is_node:
            return FOLDER / "npm" / self.pins / "package.json"
        return FOLDER / "requirements" / f"{self.pins}.txt"

    @property
    def version(self) -> str:
        """The pinned version of its package."""
        text = self.requirements.read_text()
        if self.is_node:
            return str(json.loads(text)["dependencies"][self.package])
        found = re.search(rf"^{re.escape(self.package)}==(\S+)$", text, re.MULTILINE)
        assert found, f"{self.package} is not pinned"
        return found[1]


CLIENTS = (
    Client("OpenAI for Python", "openai", "openai", "openai_python.py"),
    Client("OpenAI for Node", "openai", "openai", "openai_node.mjs"),
    Client("LangChain", "langchain-openai", "langchain", "langchain_client.py"),
    Client("LiteLLM", "litellm", "litellm", "litellm_client.py"),
    Client("Agents SDK", "openai-agents", "agents", "agents_client.py"),
    Client("AI SDK", "ai", "ai-sdk", "ai_sdk.mjs"),
    Client("pydantic-ai", "pydantic-ai-slim", "pydantic_ai", "pydantic_ai_client.py"),
    Client("instructor", "instructor", "instructor", "instructor_client.py"),
    Client("llm", "llm", "llm", "llm_client.py"),
)

Outcomes = Mapping[str, Mapping[str, str]]


def recorded() -> dict[str, dict[str, str]]:
    """The outcomes that are expected."""
    content: dict[str, dict[str, str]] = json.loads((FOLDER / "outcomes.json").read_text())
    return content


def written(text: str, outcomes: Outcomes) -> str:
    """The page `text` with its tables anew: a row for each client, then every call of each."""
    sections = (_section(client, outcomes[client.title]) for client in CLIENTS)
    return "\n".join([text.partition(BEGIN)[0] + BEGIN + "\n", *_summary(outcomes), "", *sections])


def _summary(outcomes: Outcomes) -> Iterator[str]:
    yield "| client | version | calls that work | refused by name |"
    yield "|---|---|---|---|"
    for client in CLIENTS:
        calls = outcomes[client.title]
        works = sum(outcome == "works" for outcome in calls.values())
        fields = dict.fromkeys(_field(each) for each in calls.values() if _field(each))
        refused = ", ".join(f"`{field}`" for field in fields)
        yield f"| {client.title} | {client.version} | {works} of {len(calls)} | {refused} |"


def _section(client: Client, calls: Mapping[str, str]) -> str:
    rows = [f"| {name} | {_described(outcome)} |" for name, outcome in calls.items()]
    head = f"## {client.title}\n\n`{client.package}` {client.version}\n\n| call | |\n|---|---|"
    return "\n".join([head, *rows, ""])


def _field(outcome: str) -> str:
    """The refused field, without its place in a list; empty: the call is not refused."""
    _, _, field = outcome.partition(": ")
    return re.sub(r"\.\d+", "", field).removesuffix(".type")


def _described(outcome: str) -> str:
    kind, _, field = outcome.partition(": ")
    return f"{kind}: `{field}`" if field else kind


if __name__ == "__main__":
    PAGE.write_text(written(PAGE.read_text(), recorded()))
