"""A model of a provider that proposes terms for vocabulary banks."""

from ...agent_prompts import expander_prompt
from ...vocabulary_protocol import BankBrief, Proposals
from .agents import RemoteAgent
from .structured import ExpansionAnswer


class RemoteExpander(RemoteAgent):
    """Proposes terms; see `Expander` in `inference/expander.py`."""

    async def expand(self, brief: BankBrief) -> Proposals:
        text = expander_prompt(brief, self._settings.prompt("expander")).text
        return (await self._fill(text, (), ExpansionAnswer)).proposals()
