"""The clients whose calls are tested, how each call ends, and the tables that say so.

`outcomes.json` has the outcomes: client -> call -> `works`, `refused: FIELD` or `not offered`.
Run as a program after a change of it, this writes the tables of README.md and docs/clients.md.
"""

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

FOLDER = Path(__file__).parent
ROOT = FOLDER.parents[3]
README, PAGE = ROOT / "README.md", ROOT / "docs" / "clients.md"
BEGIN, END = "<!-- clients: written by tests -->", "<!-- end of clients -->"
PAGE_HEAD = (
    "# Clients\n\nWhat existing clients of OpenAI's APIs do with `interleave serve`, unmodified: "
    "base URL and key are set, nothing else. Every call is made by `make test-long` "
    "(`tests/inference/service/clients`), with the pinned version. A call that is refused fails "
    "with an error (400) that names the field of its request and says what to do instead; *not "
    "offered* is an endpoint that does not exist here (404, 405).\n\n"
    "Where `INTERLEAVE_SERVICE_KEYS` has keys, clients send one as `Authorization: Bearer KEY` "
    "(`bearer` is the same). Of several keys, each sees its own responses, files and "
    "[costs](costs.md). `/docs` shows every endpoint and field, and needs no key.\n\n"
    "In a browser, pages of other origins change nothing: whatever is not GET, HEAD or OPTIONS "
    "gets 403, unless `service.cors_origins: [https://app.example]` has their origin, which "
    "then gets CORS, preflights included. A reverse proxy should pass `Host` on.\n\n"
    "Answers to new requests (`/v1/responses`, `/v1/chat/completions`, `/v1/images/*`), refusals "
    "by queue or content included, have OpenAI's headers `x-ratelimit-limit-requests`, "
    "`x-ratelimit-remaining-requests` and `x-ratelimit-reset-requests`. They count requests that "
    "wait or run at the same time, not those of a minute: `limit` is how many the key may have "
    "(`service.per_key`; without keys, or where it is lower, `running` and `waiting` together), "
    "`remaining` how many more would be taken now, `reset` the expected time until one is, `0s` "
    "while there is room. The answered request counts until it has ended and is stored. A 429 "
    "also has `Retry-After`, with the same time.\n\n"
    "`/v1/images/generations` and `/v1/images/edits` generate the whole sequence and answer with "
    "its last image; `interleave.generation_id` of the answer, after `resp_`, is the id of the "
    "Response that has the others. `usage` counts all tokens of planner and critic as text.\n"
)


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


def readme_table(outcomes: Outcomes) -> str:
    """A row for each client: how many calls work, and the fields that are refused."""
    return "\n".join(_readme_rows(outcomes))


def page(outcomes: Outcomes) -> str:
    """docs/clients.md: every call."""
    sections = (_section(client, outcomes[client.title]) for client in CLIENTS)
    return "\n".join([PAGE_HEAD, *sections])


def with_table(readme: str, table: str) -> str:
    """README.md with another table."""
    head, _, rest = readme.partition(BEGIN)
    return f"{head}{BEGIN}\n{table}\n{END}{rest.partition(END)[2]}"


def _readme_rows(outcomes: Outcomes) -> Iterator[str]:
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
    README.write_text(with_table(README.read_text(), readme_table(recorded())))
    PAGE.write_text(page(recorded()))
