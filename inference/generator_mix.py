"""Several generators that share the prompts of a bank, one for each prompt."""

import math
from dataclasses import replace

from .calls.hashing import unit_interval
from .roles import Generator, Roles


def roles_of_prompt(roles: Roles, prompt_id: str) -> Roles:
    """The roles of a prompt of the bank: with a mix, its generator is the member that draws it.

    The member follows from the prompt's id by weighted rendezvous hashing: another weight, or one
    member more or less, changes it for as few prompts as the new weights allow.
    """
    if not roles.mix:
        return roles

    def arrival(member: tuple[Generator, float]) -> float:
        """Exponential with the weight as its rate: each is first as often as its weight says."""
        generator, weight = member
        return -math.log1p(-unit_interval(f"{generator.backend} {prompt_id}")) / weight

    return replace(roles, generator=min(roles.mix, key=arrival)[0])


def generator_shares(roles: Roles) -> list[tuple[Generator, float]]:
    """Who draws the bank's prompts, and the expected share of them."""
    members = roles.mix or ((roles.generator, 1.0),)
    total = sum(weight for _, weight in members)
    return [(generator, weight / total) for generator, weight in members]
