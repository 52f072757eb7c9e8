"""Notifications: failed runs, a line with asset, partition, error and link; shares of the budget.

All tries together take less than the 60 s that Dagster gives the tick of a sensor.
"""

import json
import re
import smtplib
import ssl
import textwrap
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from email.message import EmailMessage
from functools import partial
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import dagster as dg
from tenacity import Retrying, retry_if_exception, stop_after_attempt, wait_random_exponential

from assets.core.notification_settings import MailSettings, NotificationSettings, secret
from inference.backends.providers.budget import SpendingFile
from schemas import FoundryError

from .instance import PARTITION_TAG

_MAX_WAIT_SECONDS = 2
_BUSY = (408, 425, 429)
_WILL_RETRY_TAG = "dagster/will_retry"
_MAX_ERROR_CHARACTERS = 300
_MODULE = re.compile(r"^(?:\w+\.)+(?=\w+:)")


@dataclass(frozen=True)
class Failure:
    """A failed run: labels such as `steps` or `plans[sketchbook-0000]`, and why."""

    label: str
    error: str
    link: str
    retried: bool = False

    @property
    def subject(self) -> str:
        return f"{self.label} failed"

    @property
    def line(self) -> str:
        after = "; it is started again" if self.retried else ""
        return f"{self.label} failed{after}: {self.error} ({self.link})"


def failure_of(run: dg.DagsterRun, steps: Sequence[dg.DagsterEvent], why: str, ui: str) -> Failure:
    """What to say of a run.

    Args:
        steps: events of the steps that failed; none when its process died.
        why: what Dagster says of the run as a whole.
    """
    names = [step.step_key for step in steps if step.step_key]
    errors = [_user_error(step) for step in steps]
    selected = sorted(key.to_user_string() for key in run.asset_selection or ())
    partition = run.tags.get(PARTITION_TAG)
    label = ", ".join(names or selected or [run.job_name])
    return Failure(
        label=f"{label}[{partition}]" if partition else label,
        error=textwrap.shorten("; ".join(filter(None, errors)) or why, _MAX_ERROR_CHARACTERS),
        link=f"{ui.rstrip('/')}/runs/{run.run_id}",
        retried=run.tags.get(_WILL_RETRY_TAG) == "true",
    )


def notify(settings: NotificationSettings, failure: Failure) -> None:
    """Tell webhook and mail of a failure; FoundryError names those that could not be told."""
    problems = [
        f"{name}: {problem}"
        for name, send in _channels(settings).items()
        if (problem := _try(partial(send, failure.subject, failure.line), settings))
    ]
    if problems:
        raise FoundryError(f"not notified of {failure.label}: {'; '.join(problems)}")


def notify_alerts(settings: NotificationSettings, spending: SpendingFile) -> list[str]:
    """Tell webhook and mail of every share of the budget that was reached, once each; returns the
    lines that were sent. What could not be sent is tried again at the next call.

    An alert counts as sent once a channel has accepted it. Where its answer is lost, because the
    process is killed or the channel is too slow, it is sent again: the only case in which it comes
    twice, since nothing tells whether it came at all, and one that is missing would be worse.

    Raises:
        FoundryError: names the channels that failed.
    """
    sent, problems = list[str](), list[str]()
    if not spending.path.exists():
        return sent
    with spending.delivering():
        for name, send in _channels(settings).items():
            for alert in spending.pending(name):
                subject = f"{alert.share:.0%} of the budget is spent"
                if problem := _try(partial(send, subject, alert.line), settings):
                    problems.append(f"{name}: {problem}")
                    break  # later ones would fail as well, and a tick has 60 s
                spending.note_delivery(alert, name)
                sent.append(alert.line)
    if problems:
        raise FoundryError(f"not notified of the budget: {'; '.join(problems)}")
    return list(dict.fromkeys(sent))


def _channels(settings: NotificationSettings) -> dict[str, Callable[[str, str], None]]:
    """Functions that send a subject and a line, by the channel's name."""
    channels: dict[str, Callable[[str, str], None]] = {}
    if variable := settings.webhook:
        channels["webhook"] = lambda _, line: _post(
            secret(variable), line, settings.timeout_seconds
        )
    if mail := settings.mail:
        channels["mail"] = partial(_mail, mail, settings.timeout_seconds)
    return channels


def _try(way: Callable[[], None], settings: NotificationSettings) -> str | None:
    """Send with retries; what went wrong, in words that hold no URL and no password."""
    retrying = Retrying(
        retry=retry_if_exception(_is_transient),
        stop=stop_after_attempt(settings.tries),
        wait=wait_random_exponential(0.5, _MAX_WAIT_SECONDS),
        reraise=True,
    )
    try:
        retrying(way)
    except FoundryError as error:
        return str(error)
    except HTTPError as error:
        return f"HTTP {error.code}"
    except smtplib.SMTPResponseException as error:
        return f"SMTP {error.smtp_code}"
    except Exception as error:  # notifying must not fail for what a server or a URL may be
        return type(getattr(error, "reason", error)).__name__
    return None


def _is_transient(error: BaseException) -> bool:
    if isinstance(error, HTTPError):
        return error.code >= 500 or error.code in _BUSY
    if isinstance(error, smtplib.SMTPResponseException):
        return error.smtp_code < 500
    return isinstance(error, OSError)  # refused, reset, timed out, no name


def _post(url: str, line: str, timeout_seconds: float) -> None:
    if not url.startswith(("http://", "https://")):
        raise FoundryError("its URL must start with https:// or http://")
    body = json.dumps({"text": line}).encode()
    request = Request(url, body, {"Content-Type": "application/json"})
    with urlopen(request, timeout=timeout_seconds):
        pass


def _mail(settings: MailSettings, timeout_seconds: float, subject: str, line: str) -> None:
    message = EmailMessage()
    message["From"], message["To"] = settings.sender, ", ".join(settings.to)
    message["Subject"] = f"Interleave Foundry: {subject}"
    message.set_content(line)
    with _connect(settings, timeout_seconds) as server:
        if settings.user and settings.password:
            server.login(settings.user, secret(settings.password))
        server.send_message(message)


def _connect(settings: MailSettings, timeout_seconds: float) -> smtplib.SMTP:
    host, port, verifying = settings.host, settings.port, ssl.create_default_context()
    if settings.encryption == "tls":
        return smtplib.SMTP_SSL(host, port, timeout=timeout_seconds, context=verifying)
    server = smtplib.SMTP(host, port, timeout=timeout_seconds)
    if settings.encryption == "starttls":
        server.starttls(context=verifying)
    return server


def _user_error(step: dg.DagsterEvent) -> str:
    """What an asset raised, without Dagster's own error around it."""
    error = step.step_failure_data.error
    if error is None:
        return ""
    return _MODULE.sub("", (error.cause or error).message)
