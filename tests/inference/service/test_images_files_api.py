"""The Images API (the last image of a sequence) and the Files API, with the official client."""

import io
from concurrent.futures import ThreadPoolExecutor

import openai
import pytest

from tests.inference.service.running_service import (
    HOUSE,
    SNOWMAN,
    blocked_roles,
    decode_image,
    error_of,
    images_of,
    running_service,
    wait_until,
)
from warehouse import EncodedImage

GENERATIONS, EDITS = "/v1/images/generations", "/v1/images/edits"


@pytest.fixture(scope="module")
def house(client):
    """An image to edit, as a file."""
    answer = client.images.generate(prompt=HOUSE)
    return ("house.png", decode_image(answer.data[0].b64_json).data, "image/png")


def test_an_answer_is_the_last_image_of_the_sequence(client):
    answer = client.images.generate(
        model="interleave", prompt=SNOWMAN, n=1, size="auto", response_format="b64_json"
    )
    type(answer).model_validate(answer.model_dump())
    images = images_of(client.responses.create(input=SNOWMAN))
    [image] = answer.data
    assert len(images) > 1 and decode_image(image.b64_json) == images[-1]
    step = answer.interleave["steps"][-1]
    assert image.revised_prompt == step["attempts"][step["iteration"]]["prompt"]
    assert answer.created and answer.output_format == "png"
    assert answer.usage.total_tokens == answer.usage.input_tokens + answer.usage.output_tokens
    stored = client.responses.retrieve(f"resp_{answer.interleave['generation_id']}")
    assert images_of(stored) == images


def test_an_edit_begins_with_the_images_of_the_form(client, house):
    given = EncodedImage(house[1]).sha256
    for files in (house, [house]):
        answer = client.images.edit(image=files, prompt="Add a yellow sun")
        assert answer.interleave["input_images"] == [given]
        assert decode_image(answer.data[0].b64_json).sha256 != given


def test_images_have_the_format_that_is_asked_for(client, house):
    options = {"output_format": "jpeg", "output_compression": 60}
    created = client.images.generate(prompt=HOUSE, **options)
    edited = client.images.edit(image=house, prompt="Add a yellow sun", **options)
    for answer in (created, edited):
        assert decode_image(answer.data[0].b64_json).mime == "image/jpeg"
        assert answer.output_format == "jpeg"


def test_what_is_not_honoured_is_refused_by_name(service, house):
    for field, value in [
        ("n", 2),
        ("size", "1024x1024"),
        ("quality", "high"),
        ("background", "transparent"),
        ("response_format", "url"),
        ("partial_images", 1),
        ("stream", True),
        ("style", "natural"),
        ("output_format", "gif"),
        ("moderation", "none"),
    ]:
        created = service.post(GENERATIONS, json={"prompt": HOUSE, field: value})
        form = {"prompt": HOUSE, field: str(value).lower() if value is True else str(value)}
        for answer in (created, service.post(EDITS, data=form, files={"image": house})):
            error = error_of(answer, 400)
            assert error["param"] == field
            assert error["code"] in ("unsupported_value", "invalid_value")


def test_forms_are_checked(service, client, house):
    with pytest.raises(openai.BadRequestError, match="mask: it is not supported here"):
        client.images.edit(image=house, mask=house, prompt=HOUSE)
    with pytest.raises(openai.BadRequestError, match="image is not a PNG, JPEG or WebP"):
        client.images.edit(image=io.BytesIO(b"no image"), prompt=HOUSE)
    prompt = {"prompt": (None, HOUSE)}
    missing = error_of(service.post(EDITS, files=prompt), 400)
    assert (missing["param"], missing["code"]) == ("image", "missing_required_parameter")
    unknown = error_of(service.post(EDITS, files=prompt | {"picture": house}), 400)
    assert (unknown["param"], unknown["code"]) == ("picture", "unknown_parameter")
    head = {"Content-Type": "multipart/form-data; boundary=b; charset=utf-7"}
    surrogate = b'--b\r\nContent-Disposition: form-data; name="+2AA-"\r\n\r\nx\r\n--b--\r\n'
    error_of(service.post(EDITS, content=surrogate, headers=head), 400)
    many = error_of(service.post(EDITS, files=[*prompt.items(), *[("image[]", house)] * 17]), 400)
    assert many["code"] == "too_many_images"


def test_requests_without_an_image_are_refused(client, house):
    with pytest.raises(openai.BadRequestError, match="zzz") as refused:
        client.images.generate(prompt="zzz")
    assert refused.value.code == "invalid_prompt"
    with pytest.raises(openai.BadRequestError, match="prompt: the plan has no picture") as refused:
        client.images.edit(image=house, prompt="Describe this picture in words")
    assert refused.value.code == "invalid_prompt"
    with pytest.raises(openai.BadRequestError, match="no words"):
        client.images.generate(prompt=" ")
    with pytest.raises(openai.NotFoundError):
        client.images.generate(model="gpt-image-9", prompt=HOUSE)


def test_an_edit_under_an_idempotency_key_is_made_once(client, house):
    headers = {"Idempotency-Key": "an-edit"}
    edit = client.images.edit
    first, again = (
        edit(image=house, prompt="Add a yellow sun", extra_headers=headers) for _ in range(2)
    )
    assert first == again
    with pytest.raises(openai.UnprocessableEntityError):
        edit(image=house, prompt="Add a red sun", extra_headers=headers)


def test_a_sequence_that_was_cancelled_is_an_error(home):
    barrier, roles = blocked_roles(home)
    with running_service(home, roles) as service, ThreadPoolExecutor() as threads:
        client = service.client()
        answer = threads.submit(client.images.generate, prompt=HOUSE)
        wait_until(lambda: barrier.waiting == 1)
        [running] = service.manager.store.search("")
        client.responses.cancel(running.id)
        with pytest.raises(openai.InternalServerError, match="it was cancelled"):
            answer.result()


def test_answers_say_how_many_requests_a_key_may_send(home):
    barrier, roles = blocked_roles(home)
    keys = ("key-of-the-first", "key-of-the-second")
    with running_service(home, roles, keys, running=2, waiting=1, per_key=2) as service:

        def post(key, path="/v1/responses", **more):
            body = {"input": HOUSE, "background": True} if path == "/v1/responses" else more
            answer = service.post(path, json=body, headers={"Authorization": f"Bearer {key}"})
            names = ("limit", "remaining", "reset")
            limits = [answer.headers[f"x-ratelimit-{name}-requests"] for name in names]
            return answer, limits

        assert post(keys[0])[1] == ["2", "1", "0s"]
        _, (limit, remaining, reset) = post(keys[0])
        assert (limit, remaining) == ("2", "0") and int(reset.removesuffix("s")) >= 1
        wait_until(lambda: barrier.waiting == 2)
        chat = {"messages": [{"role": "user", "content": HOUSE}]}
        for path, body in (("/v1/chat/completions", chat), (GENERATIONS, {"prompt": HOUSE})):
            rejected, limits = post(keys[0], path, **body)
            assert error_of(rejected, 429)["code"] == "rate_limit_exceeded"
            assert limits == ["2", "0", f"{rejected.headers['retry-after']}s"]
        assert post(keys[1])[1][:2] == ["2", "0"]  # the queue is full for all
        barrier.opened.set()


def upload(client, image, purpose="vision", name="house.png"):
    return client.files.create(file=(name, io.BytesIO(image.data)), purpose=purpose)


def test_an_uploaded_image_is_edited(client, house):
    house = EncodedImage(house[1])
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


def test_files_are_listed_in_pages(client):
    image = EncodedImage.white((8, 8))
    files = [upload(client, image, "user_data", f"{n}.png") for n in range(3)]
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
