"""Functions of the task files beside this: our service's answers as lmms-eval's tasks read them.

This runs in lmms-eval's own environment (0.7.3 or later) and imports nothing of ours. Its chat
models give an answer as text; pictures are Markdown images with data URIs in it. Its tasks `ueval`
and `WISE` expect JSON with a text and files of pictures.
"""

import base64
import hashlib
import json
import os
import re
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

# The task files name functions of these as well.
from lmms_eval.tasks.ueval.utils import *  # noqa: F403
from lmms_eval.tasks.ueval.utils import ueval_process_results
from lmms_eval.tasks.WISE.utils import *  # noqa: F403
from lmms_eval.tasks.WISE.utils import wise_process_results

PICTURES = "INTERLEAVE_LMMS_EVAL_PICTURES"  # folder of the answers' pictures; default: a new one
_PICTURE = re.compile(r"!\[[^\]\n]*\]\(data:image/([a-z]+);base64,([A-Za-z0-9+/=]+)\)")


def no_pictures(doc: Mapping[str, Any]) -> list[Any]:
    """Requests of both benchmarks are text."""
    return []


def ueval_results(doc: Mapping[str, Any], results: Sequence[str]) -> dict[str, Any]:
    """lmms-eval's scores of an answer to UEval, by its judge."""
    answered: dict[str, Any] = ueval_process_results(doc, [read_answer(results[0])])
    return answered


def wise_results(doc: Mapping[str, Any], results: Sequence[str]) -> dict[str, Any]:
    """lmms-eval's scores of an answer to WISE, by its judge, who sees the first picture that it is
    given: as in the paper, the last one of the answer.
    """
    answer = json.loads(read_answer(results[0]))
    answer["images"] = answer["images"][-1:]
    answered: dict[str, Any] = wise_process_results(doc, [json.dumps(answer)])
    return answered


def read_answer(content: str) -> str:
    """A chat answer as JSON: its `text` without pictures, and files of its `images`, in order."""
    images = [str(_save(kind, data)) for kind, data in _PICTURE.findall(content)]
    return json.dumps({"text": _PICTURE.sub("", content).strip(), "images": images})


def _save(kind: str, data: str) -> Path:
    content = base64.b64decode(data)
    folder = Path(os.environ.setdefault(PICTURES, tempfile.mkdtemp(prefix="interleave-")))
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{hashlib.sha256(content).hexdigest()}.{kind}"
    path.write_bytes(content)
    return path
