"""The Files API, with the official client."""

import io

import openai
import pytest

from tests.inference.service.running_service import HOUSE, error_of, images_of, running_service
from warehouse import EncodedImage


@pytest.fixture(scope="module")
def house(client):
    return images_of(client.responses.create(input=HOUSE))[-1]


def upload(client, image, purpose="vision", name="house.png"):
    return client.files.create(file=(name, io.BytesIO(image.data)), purpose=purpose)


def test_an_uploaded_image_is_edited(client, house):
    file = upload(client, house)
    assert (file.filename, file.purpose, file.bytes) == ("house.png", "vision", len(house.data))
    type(file).model_validate(file.model_dump())
    content = [
        {"type": "input_image", "file_id": file.id},
        {"type": "input_text", "text": "Add a yellow sun"},
    ]
    response = client.responses.create(input=[{"role": "user", "content": content}])
    assert response.interleave["input_images"] == [house.sha256]
    (item,) = client.responses.input_items.list(response.id).data
    assert item.content[0].file_id == file.id
    assert client.files.content(file.id).read() == house.data
    assert client.files.retrieve(file.id) == file
    assert client.files.wait_for_processing(file.id).status == "processed"
    assert client.files.delete(file.id).deleted
    for missing in (client.files.retrieve, client.files.content, client.files.delete):
        with pytest.raises(openai.NotFoundError, match="there is no file"):
            missing(file.id)
    with pytest.raises(openai.BadRequestError) as error:
        client.responses.create(input=[{"role": "user", "content": content}])
    assert error.value.param == "input.0.content.0.file_id"
    assert client.responses.retrieve(response.id).interleave["input_images"] == [house.sha256]


def test_files_are_listed_in_pages(client, house):
    files = [upload(client, house, "user_data", f"{n}.png") for n in range(3)]
    listed = client.files.list(purpose="user_data", limit=2)
    assert [file.id for file in listed.data] == [files[2].id, files[1].id] and listed.has_more
    assert [file.id for file in listed] == [file.id for file in reversed(files)]  # all pages
    ascending = client.files.list(purpose="user_data", order="asc").data
    assert [file.filename for file in ascending] == ["0.png", "1.png", "2.png"]
    for file in files:
        client.files.delete(file.id)


def test_files_belong_to_their_key(home):
    image = EncodedImage.white((8, 8))
    with running_service(home, keys=("one", "two"), limits={"files": 2}) as service:
        one, two = service.client(key="one"), service.client(key="two")
        file = upload(one, image)
        assert [each.id for each in one.files.list()] == [file.id] and not list(two.files.list())
        for missing in (two.files.retrieve, two.files.content, two.files.delete):
            with pytest.raises(openai.NotFoundError):
                missing(file.id)
        edit = {"type": "input_text", "text": "Add a sun"}
        content = [{"type": "input_image", "file_id": file.id}, edit]
        with pytest.raises(openai.BadRequestError, match="there is no file"):
            two.responses.create(input=[{"role": "user", "content": content}])
        upload(one, image)
        with pytest.raises(openai.BadRequestError, match="at most 2 files"):
            upload(one, image)
        upload(two, image)
    with running_service(home, keys=("one",)) as service:  # they are stored
        assert service.client(key="one").files.content(file.id).read() == image.data


def test_what_is_no_image_is_refused(service, client):
    def post(param, **form):
        error = error_of(service.post("/v1/files", **form), 400)
        assert error["param"] == param and param in error["message"]

    image = ("a.png", EncodedImage.white((8, 8)).data)
    post("file", files={"file": ("a.txt", b"hello")}, data={"purpose": "vision"})
    post("file", files={"file": ("a.png", b"")}, data={"purpose": "vision"})
    post("purpose", files={"file": image}, data={"purpose": "batch"})
    post("purpose", files={"file": image})
    expiry = {"purpose": "vision", "expires_after[seconds]": "3600"}
    post("expires_after[seconds]", files={"file": image}, data=expiry)
    post("files", files={"files": image}, data={"purpose": "vision"})
    error_of(service.post("/v1/files", json={"purpose": "vision"}), 400)
    with pytest.raises(openai.BadRequestError, match="no file nothing"):
        client.files.list(after="nothing")


def test_files_are_bounded_each_and_together(home):
    image = EncodedImage.white((64, 64))
    limits = {"files_bytes": 2 * len(image.data), "picture_bytes": 10_000, "pixels": 64 * 64}
    with running_service(home, limits=limits) as service:
        client = service.client()
        first, _ = upload(client, image), upload(client, image)
        for refused, reason in [
            (image, "bytes in all"),
            (EncodedImage(bytes(10_001)), "at most 10000 are allowed"),
            (EncodedImage.white((65, 64)), "pixels"),
        ]:
            with pytest.raises(openai.BadRequestError, match=reason):
                upload(client, refused)
        client.files.delete(first.id)
        upload(client, image)
