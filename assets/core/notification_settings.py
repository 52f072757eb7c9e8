"""Profile settings of notifications: who is told of failed runs and of the budget, and how."""

import os
from typing import Literal

from pydantic import Field, PositiveInt, model_validator

from schemas import FoundryError
from schemas.yaml_config import ConfigModel


class MailSettings(ConfigModel):
    """An SMTP server, and whom it writes to."""

    host: str = Field(description="Host name of the SMTP server")
    port: PositiveInt = Field(587, description="Its port")
    encryption: Literal["starttls", "tls", "none"] = Field(
        "starttls", description="starttls (port 587), tls from the start (port 465), or none"
    )
    user: str | None = Field(None, description="User name; null: no login")
    password: str | None = Field(
        None, description="Environment variable that holds the password; null: no login"
    )
    sender: str = Field(description="Address that mails come from")
    to: list[str] = Field(min_length=1, description="Addresses that mails go to")

    @model_validator(mode="after")
    def _login_is_complete(self) -> "MailSettings":
        if (self.user is None) != (self.password is None):
            raise ValueError("a login needs both `user` and `password`; leave out both for none")
        return self


class NotificationSettings(ConfigModel):
    """A line by webhook, by mail, or both, for every failed run that the daemon sees, and for every
    share of the budget (`budget.alerts`) that is spent."""

    webhook: str | None = Field(
        None,
        description="Environment variable that holds the URL of a webhook in Slack's format, which "
        "Mattermost, Rocket.Chat and Discord (its URL with /slack at the end) take as well",
    )
    mail: MailSettings | None = Field(None, description="null: no mail")
    ui: str = Field(
        "http://127.0.0.1:3000", description="Address of `interleave ui`, for the link to the run"
    )
    tries: int = Field(3, ge=1, le=3, description="How often a notification is tried")
    timeout_seconds: float = Field(5, gt=0, le=5, description="Of one try")

    @model_validator(mode="after")
    def _goes_somewhere(self) -> "NotificationSettings":
        if not self.webhook and not self.mail:
            raise ValueError("set `webhook`, `mail` or both")
        return self


def secret(variable: str) -> str:
    """The value of an environment variable; FoundryError if it is not set."""
    if value := os.environ.get(variable, "").strip():
        return value
    raise FoundryError(
        f"the environment variable {variable} is not set, which `notifications` names"
    )
