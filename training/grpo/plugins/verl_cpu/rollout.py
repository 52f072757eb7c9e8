"""A rollout server that gathers requests and answers them in one batch.

verl requests one answer at a time, n for each prompt of a step. The server waits until no request
has come for a moment, decodes all of them together and returns each answer as soon as it ends, so
that its reward is computed while others are still being decoded. Weights change between batches.
"""

import asyncio
import os
from collections.abc import Iterable
from typing import Any

import ray
import torch
from torch import Tensor
from verl.workers.rollout.base import BaseRollout
from verl.workers.rollout.replica import RolloutReplica, TokenOutput

from .decoding import DecodedAnswer, Decoder, Request, Vocabulary

_GATHER_SECONDS = 0.15  # seconds without a new request after which a batch is complete
_VISION_TOKENS = ("image", "video", "vision_start", "vision_end")
PendingRequest = tuple[Request, "asyncio.Future[DecodedAnswer]"]


class BatchingServer:
    """One model in one process; every method runs on the actor's event loop."""

    def __init__(self, model: str, response_length: int, max_batch: int, seed: int) -> None:
        torch.set_num_threads(1)  # rewards need a core as well
        self._model, self._decoder = _load(model)
        self._response_length = response_length
        self._max_batch = max_batch
        self._seed = seed
        self._batches = 0
        self._step: int | None = None
        self._weights_lock = asyncio.Lock()
        self._arrived = asyncio.Event()
        self._pending: list[PendingRequest] = []
        self._worker: asyncio.Task[None] | None = None

    async def generate(
        self,
        request_id: str,
        prompt_ids: list[int],
        sampling_params: dict[str, Any],
        image_data: list[Any] | None = None,
        **_unused: Any,
    ) -> TokenOutput:
        """One answer, as verl's agent loop requests it."""
        request = Request(
            prompt=tuple(prompt_ids),
            images=tuple(image_data or ()),
            temperature=float(sampling_params.get("temperature", 1.0)),
            max_tokens=int(sampling_params.get("max_tokens") or self._response_length),
        )
        future: asyncio.Future[DecodedAnswer] = asyncio.get_running_loop().create_future()
        self._pending.append((request, future))
        self._arrived.set()
        if self._worker is None or self._worker.done():
            self._worker = asyncio.create_task(self._serve())
        answer = await future
        return TokenOutput(
            token_ids=answer.tokens,
            log_probs=answer.log_probs,
            stop_reason="completed",
            extra_fields={"global_steps": self._step},
        )

    async def load_weights(self, state: dict[str, Any], step: int | None) -> None:
        """Replace the weights, between batches."""
        async with self._weights_lock:
            result = self._model.load_state_dict(state, strict=False)
            mismatched = [*result.missing_keys, *result.unexpected_keys]
            if mismatched:
                raise RuntimeError(f"weights of another model: {', '.join(mismatched[:5])}")
            self._step = step

    async def ready(self, *_args: Any, **_kwargs: Any) -> None:
        """The model is loaded; also all calls of verl that a CPU does not need."""

    wake_up = sleep = ready
    clear_kv_cache = release_kv_cache = resume_kv_cache = ready
    abort_all_requests = resume_generation = ready
    start_profile = stop_profile = ready

    async def _serve(self) -> None:
        """Answer batch after batch until none is pending."""
        while self._pending:
            await self._gather()
            batch = self._pending[: self._max_batch]
            del self._pending[: self._max_batch]
            async with self._weights_lock:
                await self._answer(batch)

    async def _gather(self) -> None:
        """Return when a batch is full, or when requests have stopped coming."""
        while len(self._pending) < self._max_batch:
            self._arrived.clear()
            try:
                await asyncio.wait_for(self._arrived.wait(), _GATHER_SECONDS)
            except TimeoutError:
                return

    async def _answer(self, batch: list[PendingRequest]) -> None:
        """Decode in a thread; an error is that of every request without an answer."""
        batch.sort(key=lambda pending: pending[0].prompt)  # the order of arrival is random
        loop = asyncio.get_running_loop()
        self._batches += 1

        def on_end(index: int, answer: DecodedAnswer) -> None:
            loop.call_soon_threadsafe(batch[index][1].set_result, answer)

        seed = self._seed + 1_000_003 * (self._step or 0) + self._batches
        requests = [request for request, _ in batch]
        try:
            await asyncio.to_thread(self._decoder.decode, requests, seed, on_end)
        except Exception as error:
            for _, future in batch:
                if not future.done():
                    future.set_exception(error)


class BatchedReplica(RolloutReplica):
    """Starts the server as an actor beside the workers."""

    async def launch_servers(self) -> None:
        """Start it, and wait until its model is loaded."""
        if self.config.top_p != 1.0 or self.config.top_k > 0:
            raise ValueError("the batched CPU rollout samples by temperature only: no top_p, top_k")
        name = _actor_name(self.replica_rank)
        server: Any = (
            ray.remote(BatchingServer)
            .options(name=name, num_cpus=0, max_concurrency=self.max_concurrency)
            .remote(
                model=self.model_config.path,
                response_length=self.config.response_length,
                max_batch=self.config.max_num_seqs,
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
            state = {name: _full_tensor(weight).float() for name, weight in weights}
        server = ray.get_actor(_actor_name(int(os.environ["RANK"])))
        await server.load_weights.remote(state, global_steps)


def _actor_name(rank: int) -> str:
    return f"batching_server_{rank}"


def _full_tensor(weight: Any) -> Tensor:
    """A copy of a possibly sharded weight: the trainer keeps changing its own."""
    full: Tensor = weight.full_tensor() if hasattr(weight, "full_tensor") else weight
    return full.detach().cpu().clone()


def _load(path: str) -> tuple[Any, Decoder]:
    """The model in single precision, and its decoder."""
    from transformers import AutoConfig, AutoProcessor
    from verl.utils.model import get_hf_auto_model_class

    config = AutoConfig.from_pretrained(path)
    model = get_hf_auto_model_class(config).from_pretrained(
        path, config=config, dtype=torch.float32
    )
    processor = AutoProcessor.from_pretrained(path)
    tokenizer = processor.tokenizer
    banned = [getattr(config, f"{name}_token_id", None) for name in _VISION_TOKENS]
    vocabulary = Vocabulary(
        image=config.image_token_id,
        pad=tokenizer.pad_token_id,
        ends=frozenset({tokenizer.eos_token_id}),
        banned=tuple(token for token in banned if token is not None),
    )
    return model.eval(), Decoder(model, processor.image_processor, vocabulary)
