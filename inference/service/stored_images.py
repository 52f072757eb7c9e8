"""Images that a request names by id: uploaded files, and pictures of earlier responses."""

import asyncio
import re
from dataclasses import dataclass

from warehouse import EncodedImage

from ..http.errors import APIError, bad_request
from .file_store import FileStore
from .request_manager import RequestManager
from .request_parsing import ImageRef
from .serving import load_images

_CALL_ID = re.compile(r"ig_([A-Za-z0-9]{1,64})_(\d{1,6})")


@dataclass(frozen=True)
class StoredImages:
    """The images of one client."""

    manager: RequestManager
    files: FileStore
    owner: str

    async def load(self, ref: ImageRef) -> EncodedImage:
        """An image by its id.

        Raises:
            APIError: the client has no such image.
        """
        load = self._image_of_file if ref.kind == "file" else self._image_of_call
        return await load(str(ref.source), ref.param)

    async def _image_of_file(self, file_id: str, param: str) -> EncodedImage:
        content = await asyncio.to_thread(self.files.content, file_id, self.owner)
        if content is None:
            raise bad_request(f"{param}: there is no file {file_id}", param, "file_not_found")
        return EncodedImage(content)

    async def _image_of_call(self, call_id: str, param: str) -> EncodedImage:
        if not (found := _CALL_ID.fullmatch(call_id)):
            raise _not_found(call_id, param)
        generation_id, step_number = found.groups()
        run = await self.manager.find(f"resp_{generation_id}", self.owner)
        steps = run.build_response().state.steps if run else []
        chosen = [each.chosen for each in steps if each.step.step_number == int(step_number)]
        if not chosen or chosen[0] is None:
            raise _not_found(call_id, param)
        image = chosen[0].image
        try:
            await load_images([image])
        except APIError:
            raise bad_request(f"{param}: the image of {call_id} is missing", param) from None
        return image


def _not_found(call_id: str, param: str) -> APIError:
    message = f"{param}: no stored response has an image {call_id}; send its result instead"
    return bad_request(message, param, "image_not_found")
