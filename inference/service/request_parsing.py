"""From a conversation to a `GenerationRequest`, within the limits of a service.

A conversation becomes one request: its instructions, the last image of the last answer, and what
the user said since. Earlier turns are not read again. Images of answers that follow the last words
of the user are those to edit. The size of images is checked before they are decoded.
"""

import asyncio
from collections.abc import Awaitable, Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from warehouse import EncodedImage

from ..agent_prompts.templates import IMAGE, escape_tags
from ..backends.checkpoint.manifest import IDENTITY, PROMOTED
from ..generation.agent_resolver import TRAINED_CRITICS
from ..generation.requests import GenerationOptions, GenerationRequest, RequestedAgents
from ..http.body_reader import check_image
from ..http.errors import bad_request, not_found
from ..settings import LoopSettings
from .request_models import ContentPart, ConversationTurn, ImageRef, RequestOptions, Role
from .settings import RequestLimits


class ServedModel(NamedTuple):
    """A choice of agents. `critic`: see `AgentResolver.resolve`; None: the one in use."""

    critic: str | None
    title: str
    description: str


MODELS = {
    "interleave": ServedModel(None, "Current", "The agents in use"),
    "interleave-base": ServedModel("base", "Base", "The profile's own planner and critic"),
    "interleave-sft": ServedModel("sft", "SFT", "Critic after supervised fine-tuning"),
    "interleave-rl": ServedModel("rl", "RL", "Critic after reinforcement learning"),
}
DEFAULT_MODEL = "interleave"

LoadStored = Callable[[ImageRef], Awaitable[EncodedImage]]


@dataclass(frozen=True)
class RequestParser:
    """Checks requests against a service's limits and fills in a profile's defaults."""

    defaults: LoopSettings
    limits: RequestLimits

    async def parse(
        self,
        turns: Sequence[ConversationTurn],
        model: str | None,
        options: RequestOptions,
        param: str,
        previous_images: tuple[EncodedImage, ...] = (),
        load_stored: LoadStored | None = None,
    ) -> GenerationRequest:
        """The request of a conversation.

        Args:
            param: the API's field that has the conversation, for error messages.
            previous_images: of the response that the request continues; not used where the
                conversation has an answer with images itself.
            load_stored: loads an image that is named by its id.

        Raises:
            APIError: the model is unknown, the text is empty or too long, an option exceeds a
                limit, or an image is unusable.
        """
        agents = self._agents(options, model)
        loop_options = self._loop_options(options)
        content = current_turn(turns)
        self._check_text([part for part in content if isinstance(part, str)], param)
        if _answer_images(turns):
            previous_images = ()
        text = _compose_text(content, len(previous_images))
        refs = [part for part in content if isinstance(part, ImageRef)]
        images = (*previous_images, *await self._load_images(refs, load_stored))
        return GenerationRequest(text, images, loop_options, agents, "service")

    def _agents(self, options: RequestOptions, model: str | None) -> RequestedAgents:
        self._check_reference(options.planner, "interleave.planner")
        if options.critic not in TRAINED_CRITICS:
            self._check_reference(options.critic, "interleave.critic")
        return RequestedAgents(options.planner, options.critic or critic_of(model))

    def _check_reference(self, reference: str | None, param: str) -> None:
        """Whatever is on the service's disk, or can be downloaded, is not for everybody to load."""
        if reference is None or IDENTITY.fullmatch(reference):
            return
        if reference in (PROMOTED, *self.limits.agents):
            return
        message = (
            f"{param}: {reference!r} is not `promoted`, no name@version, and not among those that "
            "`service.limits.agents` of the profile allows"
        )
        raise bad_request(message, param)

    def _check_text(self, texts: Sequence[str], param: str) -> None:
        characters = sum(map(len, texts))
        if characters > self.limits.text:
            message = (
                f"the text has {characters} characters; at most {self.limits.text} are allowed"
            )
            raise bad_request(message, param, "string_above_max_length")
        if not any(map(str.strip, texts)):
            raise bad_request("the request has no words: describe what you want to see", param)

    def _loop_options(self, options: RequestOptions) -> GenerationOptions:
        changes = options.model_dump(exclude_none=True, exclude={"planner", "critic"})
        limits = self.limits
        maxima = {"t_max": limits.t_max, "candidates": limits.candidates, "max_steps": limits.steps}
        for name, maximum in maxima.items():
            if changes.get(name, 0) > maximum:
                param = f"interleave.{name}"
                raise bad_request(f"{param}: at most {maximum} here", param)
        return GenerationOptions(**(self.defaults.model_dump() | changes))

    async def _load_images(
        self, refs: Sequence[ImageRef], load_stored: LoadStored | None
    ) -> list[EncodedImage]:
        """The images, decoded once as a check."""
        most = self.limits.pictures
        if len(refs) > most:
            message = f"at most {most} images are allowed"
            raise bad_request(message, refs[most].param, "too_many_images")
        return [
            await self._load(ref)
            if ref.kind == "url" or not load_stored
            else await load_stored(ref)
            for ref in refs
        ]

    async def _load(self, ref: ImageRef) -> EncodedImage:
        data, param = ref.source, ref.param
        if isinstance(data, str):
            is_remote = data[:8].lower().startswith(("http://", "https://"))
            hint = "this service does not fetch images from URLs; " if is_remote else ""
            message = f"{param}: {hint}send the image as a data URI (data:image/png;base64,...)"
            raise bad_request(message, param, "invalid_image_url")
        return await check_input_image(data, param, self.limits)


async def check_input_image(data: bytes, param: str, limits: RequestLimits) -> EncodedImage:
    """An image of a request, decoded once as a check; `param`: its place in the request.

    Raises:
        APIError: it is too large, empty, or no image.
    """
    if len(data) > limits.picture_bytes:
        message = f"{len(data)} bytes; at most {limits.picture_bytes} are allowed"
        raise bad_request(f"{param} has {message}", param, "image_file_too_large")
    if not data:
        raise bad_request(f"{param} is empty", param, "empty_image_file")

    def check() -> EncodedImage:
        check_image(data, param, limits.pixels)
        image = EncodedImage(data)
        _ = image.sha256  # computed here, in a thread
        return image

    return await asyncio.to_thread(check)


def available_models(critics: Collection[str]) -> list[str]:
    """The served models whose critics there are."""
    return [name for name, model in MODELS.items() if model.critic in (None, *critics)]


def critic_of(model: str | None) -> str | None:
    """The critic that a model's name stands for; an APIError (404) if there is no such model."""
    name = model or DEFAULT_MODEL
    if name not in MODELS:
        message = f"no model {name} here: there are {', '.join(MODELS)}"
        raise not_found(message, "model", "model_not_found")
    return MODELS[name].critic


def current_turn(turns: Sequence[ConversationTurn]) -> list[ContentPart]:
    """The content to answer: instructions, the last answer's last image, what was said since.

    A client may also name images to edit after its words, as OpenAI documents it.
    """
    turns, named = _split_named_images(turns)
    last_answer = max((n for n, turn in enumerate(turns) if turn.role == "assistant"), default=-1)
    images = named or _answer_images(turns[: last_answer + 1])[-1:]
    instructions = _content(turns, "system", "developer")
    return [*instructions, *images, *_content(turns[last_answer + 1 :], "user")]


def _split_named_images(
    turns: Sequence[ConversationTurn],
) -> tuple[Sequence[ConversationTurn], list[ImageRef]]:
    """The conversation without answers at its end that are only images, and those images."""
    end = len(turns)
    while end and _is_image_answer(turns[end - 1]):
        end -= 1
    return turns[:end], _answer_images(turns[end:])


def _is_image_answer(turn: ConversationTurn) -> bool:
    only_images = all(isinstance(part, ImageRef) for part in turn.content)
    return turn.role == "assistant" and bool(turn.content) and only_images


def _answer_images(turns: Iterable[ConversationTurn]) -> list[ImageRef]:
    return [part for part in _content(turns, "assistant") if isinstance(part, ImageRef)]


def _content(turns: Iterable[ConversationTurn], *roles: Role) -> list[ContentPart]:
    return [part for turn in turns if turn.role in roles for part in turn.content]


def _compose_text(content: Sequence[ContentPart], previous_images: int) -> str:
    """The text, with an `<image>` for every image, of which `previous_images` come first.

    Placeholders that the text already has are used if there are as many as images.
    """
    texts = [part.strip() for part in content if isinstance(part, str)]
    images = previous_images + len(content) - len(texts)
    text = "\n".join(filter(None, texts))
    if not images or text.count(IMAGE) == images:
        return text
    lines = [IMAGE if isinstance(part, ImageRef) else escape_tags(part).strip() for part in content]
    return "\n".join(filter(None, [*[IMAGE] * previous_images, *lines]))
