"""A rollout server that gathers waiting requests and answers them in one batch.

verl asks for one answer at a time, n for each prompt of a step. The server waits until nothing
new has come for a moment, decodes all of it together and hands each answer over as it ends, so
that its reward is drawn while the others are still being written. Weights change between batches.
"""

import asyncio
import os
from collections.abc import Iterable
from typing import Any

import ray
import torch
from verl.workers.rollout.base import BaseRollout
from verl.workers.rollout.replica import RolloutReplica, TokenOutput

from . import attention
from .decoding import DecodedAnswer, Decoder, Request, Vocabulary

_QUIET = 0.15  # seconds without a new request after which a batch is complete
_VISION_TOKENS = (
    "image_token_id",
    "video_token_id",
    "vision_start_token_id",
    "vision_end_token_id",
)
Waiting = tuple[Request, "asyncio.Future[DecodedAnswer]"]


class BatchingServer:
    """One model in one process; every method runs on the actor's event loop."""

    def __init__(self, model: str, response_length: int, largest: int, seed: int) -> None:
        torch.set_num_threads(int(os.environ.get("ROLLOUT_THREADS", "1")))
        self._model, self._decoder = _load(model)
        self._response_length = response_length
        self._largest = largest
        self._seed = seed
        self._batches = 0
        self._step: int | None = None
        self._weights = asyncio.Lock()
        self._arrived = asyncio.Event()
        self._waiting: list[Waiting] = []
        self._serving: asyncio.Task[None] | None = None

    async def generate(
        self,
        request_id: str,
        prompt_ids: list[int],
        sampling_params: dict[str, Any],
        image_data: list[Any] | None = None,
        **_unused: Any,
    ) -> TokenOutput:
        """One answer, as verl's agent loop asks for it."""
        request = Request(
            prompt=tuple(prompt_ids),
            pictures=tuple(image_data or ()),
            temperature=float(sampling_params.get("temperature", 1.0)),
            max_tokens=int(sampling_params.get("max_tokens") or self._response_length),
        )
        answer = await self._enqueue(request)
        return TokenOutput(
            token_ids=answer.tokens,
            log_probs=answer.log_probs,
            stop_reason="completed",
            extra_fields={"global_steps": self._step},
        )

    async def load_weights(self, state: dict[str, Any], step: int | None) -> None:
        """Replace the weights, between batches.

        Raises:
            RuntimeError: the trainer's weights are not those of this model.
        """
        async with self._weights:
            outcome = self._model.load_state_dict(state, strict=False)
            wrong = [*outcome.missing_keys, *outcome.unexpected_keys]
            if wrong:
                raise RuntimeError(f"weights of another model: {', '.join(wrong[:5])}")
            self._step = step

    async def ready(self, *_args: Any, **_kwargs: Any) -> None:
        """The model is loaded; also everything verl asks that a CPU has no need for."""

    wake_up = sleep = ready
    clear_kv_cache = release_kv_cache = resume_kv_cache = ready
    abort_all_requests = resume_generation = ready
    start_profile = stop_profile = ready

    async def _enqueue(self, request: Request) -> DecodedAnswer:
        future: asyncio.Future[DecodedAnswer] = asyncio.get_running_loop().create_future()
        self._waiting.append((request, future))
        self._arrived.set()
        if self._serving is None or self._serving.done():
            self._serving = asyncio.create_task(self._serve())
        return await future

    async def _serve(self) -> None:
        """Answer batch after batch until nothing waits."""
        while self._waiting:
            await self._quiet()
            batch, self._waiting = self._waiting[: self._largest], self._waiting[self._largest :]
            async with self._weights:
                await self._answer(batch)

    async def _quiet(self) -> None:
        """Return when a batch is full, or when requests have stopped coming."""
        while len(self._waiting) < self._largest:
            self._arrived.clear()
            try:
                await asyncio.wait_for(self._arrived.wait(), _QUIET)
            except TimeoutError:
                return

    async def _answer(self, batch: list[Waiting]) -> None:
        """Decode in a thread; a failure is the failure of every request that has no answer yet."""
        batch = sorted(batch, key=lambda waiting: waiting[0].prompt)  # arrival order is chance
        loop = asyncio.get_running_loop()
        self._batches += 1

        def ended(index: int, answer: DecodedAnswer) -> None:
            loop.call_soon_threadsafe(batch[index][1].set_result, answer)

        seed = self._seed + 1_000_003 * (self._step or 0) + self._batches
        try:
            await asyncio.to_thread(
                self._decoder.decode, [request for request, _ in batch], seed, ended
            )
        except Exception as error:
            for _, future in batch:
                if not future.done():
                    future.set_exception(error)


class BatchedReplica(RolloutReplica):
    """Starts the server as an actor beside the workers."""

    async def launch_servers(self) -> None:
        """Start it, and wait until its model is loaded.

        Raises:
            ValueError: the configuration asks for a form of sampling that it does not have.
        """
        if self.config.top_p != 1.0 or self.config.top_k > 0:
            raise ValueError("the batched CPU rollout samples by temperature only: no top_p, top_k")
        name = _actor_name(self.replica_rank)
        server: Any = (
            ray.remote(BatchingServer)
            .options(name=name, num_cpus=0, max_concurrency=self.max_concurrency)
            .remote(
                model=self.model_config.path,
                response_length=self.config.response_length,
                largest=self.config.max_num_seqs,
                seed=self.config.seed + self.replica_rank,
            )
        )
        await server.ready.remote()
        self.servers, self._server_handle, self._server_address = [server], server, name


class BatchedAdapter(BaseRollout):
    """The worker's end: sends the trainer's weights to the server."""

    async def resume(self, tags: list[str]) -> None: ...

    async def release(self) -> None: ...

    async def update_weights(
        self, weights: Iterable[tuple[str, Any]], global_steps: int | None = None, **_unused: Any
    ) -> None:
        with torch.no_grad():
            state = {name: _whole(weight).float() for name, weight in weights}
        server = ray.get_actor(_actor_name(int(os.environ["RANK"])))
        await server.load_weights.remote(state, global_steps)


def _actor_name(rank: int) -> str:
    return f"batching_server_{rank}"


def _whole(weight: Any) -> torch.Tensor:
    """A sharded weight gathered, and copied: the trainer goes on changing its own."""
    whole = weight.full_tensor() if hasattr(weight, "full_tensor") else weight
    return whole.detach().cpu().clone()


def _load(path: str) -> tuple[Any, Decoder]:
    """The model in single precision, and its decoder."""
    from transformers import AutoConfig, AutoProcessor
    from verl.utils.model import get_hf_auto_model_class

    attention.register()
    config = AutoConfig.from_pretrained(path)
    model = get_hf_auto_model_class(config).from_pretrained(
        path, config=config, dtype=torch.float32, attn_implementation=attention.NAME
    )
    processor = AutoProcessor.from_pretrained(path)
    tokenizer = processor.tokenizer
    vocabulary = Vocabulary(
        image=config.image_token_id,
        pad=tokenizer.pad_token_id,
        ends=frozenset({tokenizer.eos_token_id}),
        banned=tuple(
            token for name in _VISION_TOKENS if (token := getattr(config, name, None)) is not None
        ),
    )
    return model.eval(), Decoder(model, processor.image_processor, vocabulary)
