"""The asset `prompt_audit`: a sample of the bank, judged by rules and, where there is one, a model.

Its shares of natural, feasible, well-placed prompts and of those that need several pictures are
checks, each with a Wilson interval: a share warns only where its interval lies below the limit.
"""

import asyncio
import re
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import closing
from typing import Any

import dagster as dg
from pydantic import BaseModel, Field, ValidationError

from inference.agent_prompts.templates import IMAGE, render
from inference.calls.ask import ask_all
from inference.calls.progress import Progress
from inference.calls.retry import summarize_error
from inference.questions import TextQuestion
from inference.roles import qualified_name
from schemas.prompts import (
    CATEGORIES,
    PROMPT_AUDITS,
    PROMPTS,
    TEMPLATES,
    CategoryRow,
    PromptAuditRow,
    PromptRow,
    TemplateRow,
)
from schemas.trajectories import MODEL_CALLS, ModelCallRow
from warehouse import Home

from ..core.checks import blocking_checks
from ..core.duckdb_session import duckdb_session, query_rows
from ..core.foundry import FoundryResource
from ..core.metadata import model_call_costs, table_metadata
from ..core.node import Node
from ..core.progress import progress_of
from ..core.statistics import wilson_interval
from .settings import AuditJudgeSettings, AuditSettings

PROPERTIES = ("natural", "feasible", "in_category", "several_images")
_SHOWN = 20
AUDIT = Node(
    name="prompt_audit",
    group="prompts",
    description="A sample of every pack's prompts, judged natural, feasible, in their category and "
    "in need of several pictures: by rules, and by a model where the profile names one.",
    tables=(PROMPT_AUDITS,),
    ledger=(MODEL_CALLS,),
    deps=("prompts", "taxonomy", "templates"),
    arrows=("prompts",),
    sections=("prompts",),
    pool="agents",
    automatic=True,
)
prompt_audit_checks = blocking_checks(AUDIT)

AUDITOR = "rules"
_UNNATURAL = {
    "an unfilled slot": re.compile(r"[{}]"),
    "a word twice in a row": re.compile(r"\b(\w+) \1\b", re.IGNORECASE),
    "two articles in a row": re.compile(r"\b(a|an|the) (a|an|the)\b", re.IGNORECASE),
    "spaces in the wrong place": re.compile(r"\s\s|\s[.,?!]|^\s|\s$"),
    "two marks in a row": re.compile(r"[.,?!]{2}"),
}
_ABSENT = re.compile(
    r"\b(existing|previous|given|attached|above)\b[\w\s]{0,12}\b(steps?|pictures?|images?|photos?)\b",
    re.IGNORECASE,
)
_COMPOSITE = re.compile(
    r"\b(as|into|make|draw|create) an? [\w\s-]{0,20}\b(collage|comic strip|checklist)\b"
    r"|\bposter with [\w\s-]{0,20}\b(panels|pictures)\b|\bfacing pages\b|\binstruction sheet\b",
    re.IGNORECASE,
)
# A prompt that begins so asks for one picture, unless one of the words below speaks of several.
_DRAW = re.compile(
    r"(show|draw|paint|depict|picture|photograph|render|illustrate|create|make|design)\b",
    re.IGNORECASE,
)
_SEVERAL = re.compile(
    r"""\b(
    pictures|photos|photo\salbum|portraits|images|panels|slides|cards|pages|frames?|diagrams
    |scenes|(every|the)\sscene(?!$)|moments|settings|things|details|(picture|detail|part)\s(at\sa|per)
    |steps?|stages?|phases|parts|layers?|stops?|sequence|series|process|recipe|lives?
    |story|comic|storyboard|film|book|album|diary|article|information\sboard
    |guide|tutorial|manual|instructions|lesson|workshop
    |each|both|how|when|where|ways?|what\s(?!can\sbe\sseen)|who\sdoes|eyes\sof
    |first(?!\ssnow)|then|again|before|and\safter|during|until|from\s[\w\s'-]+\sto
    |(?P<unit>\w+)\sby\s(?P=unit)
    |develops|growing|becoming|turning|day|year|month|season|spring|today
    )\b""",
    re.IGNORECASE | re.VERBOSE,
)
_SAYS_NOTHING = re.compile(
    r"\bin the style of an? [\w'-]+( (?!and\b)[\w'-]+){0,2}|\bafter a thunderstorm\b"
)
_MOST_WORDS = 60


class _Answer(BaseModel, strict=True):
    natural: bool
    feasible: bool
    in_category: bool
    several_images: bool = Field(alias="several_pictures")
    reason: str | None = None


@dg.asset(**AUDIT.asset_args())
def prompt_audit(
    context: dg.AssetExecutionContext, foundry: FoundryResource
) -> dg.MaterializeResult:
    settings = foundry.settings.prompts.audit
    prompts = sample_prompts(foundry.home, settings)
    templates = {(row.pack, row.template_id): row for row in foundry.rows(TEMPLATES)}
    rows = [audit_by_rules(each, templates.get((each.pack, each.template_id))) for each in prompts]
    calls: list[ModelCallRow] = []
    if settings.judge:
        judged, calls = asyncio.run(
            _audit_by_model(foundry, settings.judge, prompts, progress_of(context))
        )
        rows += judged
    tables: dict[Any, Any] = {PROMPT_AUDITS: rows, MODEL_CALLS: calls}
    return AUDIT.record(context, foundry, tables, _metadata(prompts, rows, calls))


@dg.multi_asset_check(
    name="prompt_audit_shares",
    specs=[
        dg.AssetCheckSpec(
            name,
            asset=AUDIT.name,
            description=f"Enough prompts of the sample are {name} (`prompts.audit.at_least`)",
        )
        for name in PROPERTIES
    ],
)
def prompt_audit_shares(foundry: FoundryResource) -> Iterator[dg.AssetCheckResult]:
    rows, limit = foundry.rows(PROMPT_AUDITS), foundry.settings.prompts.audit.at_least
    for name in PROPERTIES:
        shares = audit_shares(rows, name)
        yield dg.AssetCheckResult(
            asset_key=AUDIT.name,
            check_name=name,
            passed=bool(shares) and all(share["high"] >= limit for share in shares),
            severity=dg.AssetCheckSeverity.WARN,
            metadata={"shares": table_metadata(shares), "at_least": limit},
        )


def sample_prompts(home: Home, settings: AuditSettings) -> list[PromptRow]:
    """`settings.sample` prompts of each pack, chosen by a hash of seed and prompt."""
    columns = ", ".join(PROMPTS.columns)
    sql = f"""
        SELECT {columns} FROM prompts
        QUALIFY row_number() OVER (
            PARTITION BY pack ORDER BY md5(concat_ws('/', {settings.seed}, prompt_id))
        ) <= {settings.sample}
        ORDER BY pack, prompt_id
    """
    with closing(duckdb_session(home)) as connection:
        return [PromptRow(**row) for row in query_rows(connection, sql)]


def audit_shares(rows: Sequence[PromptAuditRow], name: str) -> list[dict[str, Any]]:
    """Share of a property by auditor, with its interval; answers that are missing do not count."""
    answers: dict[str, list[bool]] = defaultdict(list)
    for row in rows:
        if (value := getattr(row, name)) is not None:
            answers[row.auditor].append(value)
    shares = []
    for auditor, values in answers.items():
        low, high = wilson_interval(sum(values), len(values))
        count = len(values)
        share = {"share": sum(values) / count, "n": count, "low": low, "high": high}
        shares.append({"auditor": auditor, **share})
    return shares


async def _audit_by_model(
    foundry: FoundryResource,
    settings: AuditJudgeSettings,
    prompts: Sequence[PromptRow],
    progress: Progress,
) -> tuple[list[PromptAuditRow], list[ModelCallRow]]:
    """Rows of the prompts, and the calls that were ever made for them.

    Raises FoundryError where the model gave no answer; finished calls are journaled.
    """
    home, profile = foundry.home, foundry.settings
    judge = profile.respondent("benchmark_judge", home, settings.backend, settings.model)
    places = {(row.pack, row.subcategory): row for row in foundry.rows(CATEGORIES)}
    questions = {
        prompt.prompt_id: _question(prompt, places.get((prompt.pack, prompt.subcategory)))
        for prompt in prompts
    }
    replies, calls = await ask_all(
        home, AUDIT.name, "all", judge, questions, profile.limits, progress
    )
    name, rows = qualified_name(judge), []
    for prompt_id, reply in replies.items():
        found: dict[str, Any] = dict.fromkeys(PROPERTIES) | {"reason": reply.failure}
        if reply.answer:
            try:
                found = _read(reply.answer.text).model_dump()
            except ValidationError as problem:
                found["reason"] = summarize_error(problem)
        found["reason"] = found["reason"] or None
        rows.append(PromptAuditRow(prompt_id=prompt_id, auditor=name, **found))
    return rows, calls


def _question(prompt: PromptRow, place: CategoryRow | None) -> TextQuestion:
    about = {"subcategory": prompt.subcategory, "description": "no description"}
    if place:
        about = {"subcategory": place.title, "description": place.description}
    asked = render("prompt-audit", request=prompt.text, category=prompt.category, **about)
    return TextQuestion(asked.text)


def _read(text: str) -> _Answer:
    """ValidationError: no JSON object of that form after the last `<answer>`."""
    body = text.rpartition("<answer>")[2].partition("</answer>")[0]
    return _Answer.model_validate_json(body.strip())


def _metadata(
    prompts: Sequence[PromptRow], rows: Sequence[PromptAuditRow], calls: Sequence[ModelCallRow]
) -> dict[str, Any]:
    texts = {prompt.prompt_id: prompt.text for prompt in prompts}
    shares = [
        {"property": name, **{key: _short(value) for key, value in share.items()}}
        for name in PROPERTIES
        for share in audit_shares(rows, name)
    ]
    faults = [
        {"prompt": texts[row.prompt_id], "auditor": row.auditor, "reason": row.reason}
        for row in rows
        if row.reason
    ]
    return {
        "shares": table_metadata(shares),
        "faults": table_metadata(faults[:_SHOWN]),
        **model_call_costs(calls),
    }


def _short(value: object) -> object:
    return f"{value:.3f}" if isinstance(value, float) else value


def audit_by_rules(prompt: PromptRow, template: TemplateRow | None = None) -> PromptAuditRow:
    """Judge a prompt by its words, and by its template."""
    faults = {
        "natural": _unnatural(prompt.text),
        "feasible": _asks_for_what_is_absent(prompt),
        "in_category": _misplaced(prompt, template),
        "several_images": _asks_for_one_picture(prompt, template),
    }
    reasons = [fault for fault in faults.values() if fault]
    return PromptAuditRow(
        prompt_id=prompt.prompt_id,
        auditor=AUDITOR,
        **{name: not fault for name, fault in faults.items()},
        reason="; ".join(reasons) or None,
    )


def _unnatural(text: str) -> str:
    found = [name for name, pattern in _UNNATURAL.items() if pattern.search(text)]
    if len(text.split()) > _MOST_WORDS:
        found.append(f"more than {_MOST_WORDS} words")
    return f"it has {', '.join(found)}" if found else ""


def _asks_for_what_is_absent(prompt: PromptRow) -> str:
    given = len(prompt.input_image_texts or prompt.input_images)
    match = re.search(IMAGE, prompt.text) if prompt.text.count(IMAGE) > given else None
    match = match or (None if given else _ABSENT.search(prompt.text))
    return f"it speaks of {match[0]!r}, which it does not come with" if match else ""


def _misplaced(prompt: PromptRow, template: TemplateRow | None) -> str:
    if template is None or prompt.subcategory in template.subcategories:
        return ""
    return f"its template does not serve {prompt.subcategory}"


def _asks_for_one_picture(prompt: PromptRow, template: TemplateRow | None) -> str:
    if (template and template.composite) or _COMPOSITE.search(prompt.text):
        return "it asks for one composite picture"
    if _DRAW.match(prompt.text) and not _SEVERAL.search(_SAYS_NOTHING.sub("", prompt.text)):
        return "it asks for one picture"
    return ""
