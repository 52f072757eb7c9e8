"""The asset `prompt_audit`: a sample of the bank, judged by rules and, where there is one, a model.

Its shares of natural, feasible, well-placed prompts and of those that need several pictures are
checks, each with a Wilson interval: a share warns only where its interval lies below the limit.
"""

import asyncio
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import closing
from statistics import NormalDist
from typing import Any

import dagster as dg
from pydantic import BaseModel, ValidationError

from inference.agent_prompts.templates import render
from inference.calls.ask import BenchmarkJudgeCalls, CallSite
from inference.calls.progress import Progress
from inference.calls.retry import summarize_error
from inference.roles import BenchmarkJudge, UnusableAnswerError, qualified_name
from inference.settings import Limits
from schemas.prompts import (
    CATEGORIES,
    PROMPT_AUDITS,
    PROMPTS,
    TEMPLATES,
    CategoryRow,
    PromptAuditRow,
    PromptRow,
)
from schemas.trajectories import MODEL_CALLS, ModelCallRow
from warehouse import Home

from ..core.checks import blocking_checks
from ..core.duckdb_session import duckdb_session, query_rows
from ..core.foundry import FoundryResource
from ..core.metadata import model_call_costs, table_metadata
from ..core.node import Node
from ..core.progress import progress_of
from .audit_rules import audit_by_rules
from .settings import AuditSettings

PROPERTIES = ("natural", "feasible", "in_category", "several_images")
_SHOWN = 20
_CONFIDENCE = 0.95
AUDIT = Node(
    name="prompt_audit",
    group="prompts",
    description="A sample of every pack's prompts, judged natural, feasible, in their category and "
    "in need of several pictures: by rules, and by a model where the profile names one.",
    tables=(PROMPT_AUDITS,),
    ledger=(MODEL_CALLS,),
    deps=("prompts", "taxonomy", "templates"),
    sections=("prompts",),
    pool="agents",
    automatic=True,
)
prompt_audit_checks = blocking_checks(AUDIT)


class _Answer(BaseModel, strict=True):
    natural: bool
    feasible: bool
    in_category: bool
    several_pictures: bool
    reason: str = ""


@dg.asset(**AUDIT.asset_args())
def prompt_audit(
    context: dg.AssetExecutionContext, foundry: FoundryResource
) -> dg.MaterializeResult:
    settings = foundry.settings.prompts.audit
    prompts = sample_prompts(foundry.home, settings)
    rows, calls = _audit_by_rules(foundry, prompts), list[ModelCallRow]()
    if settings.judge:
        judged, calls = asyncio.run(_audit_by_model(context, foundry, prompts))
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
    return [{"auditor": auditor, **_wilson(values)} for auditor, values in answers.items()]


def _wilson(values: Sequence[bool]) -> dict[str, Any]:
    """Share of True, its number of values, and Wilson's interval."""
    n, z = len(values), NormalDist().inv_cdf((1 + _CONFIDENCE) / 2)
    share = sum(values) / n
    centre = (share + z * z / (2 * n)) / (1 + z * z / n)
    half = z / (1 + z * z / n) * (share * (1 - share) / n + z * z / (4 * n * n)) ** 0.5
    return {"share": share, "n": n, "low": max(centre - half, 0.0), "high": min(centre + half, 1.0)}


def _audit_by_rules(foundry: FoundryResource, prompts: Sequence[PromptRow]) -> list[PromptAuditRow]:
    templates = {(row.pack, row.template_id): row for row in foundry.rows(TEMPLATES)}
    rows = []
    for prompt in prompts:
        template = templates.get((prompt.pack, prompt.template_id))
        served = template.subcategories if template else []
        composite = [prompt.template_id] if template and template.composite else []
        rows.append(audit_by_rules(prompt, served, composite))
    return rows


async def _audit_by_model(
    context: dg.AssetExecutionContext, foundry: FoundryResource, prompts: Sequence[PromptRow]
) -> tuple[list[PromptAuditRow], list[ModelCallRow]]:
    profile, settings = foundry.settings, foundry.settings.prompts.audit.judge
    if settings is None:
        return [], []
    judge = profile.benchmark_judge(foundry.home, settings.backend, settings.model)
    places = {(row.pack, row.subcategory): row for row in foundry.rows(CATEGORIES)}
    questions = {
        prompt.prompt_id: audit_question(prompt, places.get((prompt.pack, prompt.subcategory)))
        for prompt in prompts
    }
    return await ask_about(questions, judge, foundry.home, profile.limits, progress_of(context))


def audit_question(prompt: PromptRow, place: CategoryRow | None) -> str:
    """What the model is asked about a prompt."""
    return render(
        "prompt-audit",
        request=prompt.text,
        category=place.category if place else prompt.category,
        subcategory=place.title if place else prompt.subcategory,
        description=place.description if place else "no description",
    ).text


async def ask_about(
    questions: dict[str, str], judge: BenchmarkJudge, home: Home, limits: Limits, progress: Progress
) -> tuple[list[PromptAuditRow], list[ModelCallRow]]:
    """Rows of prompts (prompt id -> question), and the calls that were ever made for them.

    Raises FoundryError where the model gave no answer; finished calls are journaled.
    """
    name = qualified_name(judge)

    async def ask(prompt_id: str) -> PromptAuditRow:
        try:
            site = CallSite(prompt_id)
            answer = (await calls.answer(site, questions[prompt_id], ())).answer
            return _row(prompt_id, name, _read(answer.text), None)
        except (UnusableAnswerError, ValidationError) as error:
            return _row(prompt_id, name, None, summarize_error(error))

    with BenchmarkJudgeCalls(home, AUDIT.name, "all", judge, limits) as calls:
        rows = await calls.map(ask, list(questions), limits.agents, progress)
        return rows, calls.ledger()


def _read(text: str) -> _Answer:
    """ValidationError: no JSON object of that form after the last `<answer>`."""
    body = text.rpartition("<answer>")[2].partition("</answer>")[0]
    return _Answer.model_validate_json(body.strip())


def _row(prompt_id: str, auditor: str, answer: _Answer | None, error: str | None) -> PromptAuditRow:
    return PromptAuditRow(
        prompt_id=prompt_id,
        auditor=auditor,
        natural=answer and answer.natural,
        feasible=answer and answer.feasible,
        in_category=answer and answer.in_category,
        several_images=answer and answer.several_pictures,
        reason=(answer.reason or None) if answer else error,
    )


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
