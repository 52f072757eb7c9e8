"""The image service of the reference's code: `/edit`, `/health` and `/status`, in its form.

Its reward script and its Nginx set-up run against this server. What that service accepts and
ignores (guidance, steps, size, negative prompt, unknown fields such as `num_inference_step`) is
accepted and ignored here: the model draws with its own settings. Images are PNG, in base64.
"""

import base64
import time
from http import HTTPStatus
from typing import Any

from pydantic import BaseModel, Field
from starlette.responses import JSONResponse

from warehouse import EncodedImage

from ..http.errors import APIError, bad_request
from .models import DrawnImage
from .ray_replicas import Readiness


class EditRequest(BaseModel, frozen=True):
    """The body of `/edit`; without an image the prompt is drawn from text."""

    prompt: str
    image: str | None = None
    seed: int | None = Field(None, ge=0, le=2**53)
    guidance_scale: float | None = Field(4.0, ge=0, le=7.5)
    num_inference_steps: int | None = Field(50, ge=1, le=100)
    negative_prompt: str | None = " "
    enhance_prompt: bool | None = True

    def decoded_image(self) -> EncodedImage | None:
        """The image; APIError: its text is not base64."""
        if self.image is None:
            return None
        try:
            return EncodedImage(base64.b64decode(self.image))
        except ValueError:  # no ASCII, wrong length
            raise bad_request("image is not base64", "image", "invalid_image") from None


def edit_response(
    request: EditRequest, image: DrawnImage, seed: int, worker: int, start: float
) -> dict[str, Any]:
    """The answer to a request that began at `start`; `worker`: number of the replica."""
    now = time.time()
    return {
        "success": True,
        "task_id": f"edit_task_{worker}_{now}",
        "original_image": request.image,
        "edited_image": base64.b64encode(image.data).decode(),
        "seed": seed,
        "original_prompt": request.prompt,
        "enhanced_prompt": request.prompt if request.enhance_prompt else None,
        "gpu_id": worker,
        "processing_time": now - start,
        "error": None,
    }


def error_response(error: APIError) -> JSONResponse:
    """An error as FastAPI's: what is wrong with a request is 422."""
    response = error.response()
    is_invalid = error.status == HTTPStatus.BAD_REQUEST
    status = HTTPStatus.UNPROCESSABLE_ENTITY if is_invalid else error.status
    delay = {name: value for name, value in response.headers.items() if name == "retry-after"}
    return JSONResponse({"detail": error.message}, status, delay)


def health(state: Readiness) -> dict[str, Any]:
    return {"status": "Healthy", "gpu_manager_ready": state.running > 0, "timestamp": time.time()}


def status(state: Readiness, admitted: int, capacity: int) -> dict[str, Any]:
    """Images that wait or are drawn, of which `capacity` are drawn at once; a replica is a GPU."""
    return {
        "active_workers": state.running,
        "task_queue_size": max(0, admitted - capacity),
        "result_queue_size": 0,  # a result is sent when it is there
        "pending_tasks": admitted,
        "total_gpus": state.wanted,
        "system_ready": state.running > 0,
    }
