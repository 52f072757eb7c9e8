"""The OpenAPI document agrees with the routes and their answers."""

from inference.service.responses.protocol import GenerationModel
from tests.inference.service.running_service import HOUSE, wait_until


def test_the_document_has_every_route_and_schema(service):
    document = service.get("/openapi.json").json()
    paths = {path for path in document["paths"] if not path.startswith("/studio/")}
    assert paths == {
        "/v1/responses",
        "/v1/responses/{response_id}",
        "/v1/responses/{response_id}/cancel",
        "/v1/responses/{response_id}/input_items",
        "/v1/chat/completions",
        "/v1/images/generations",
        "/v1/images/edits",
        "/v1/files",
        "/v1/files/{file_id}",
        "/v1/files/{file_id}/content",
        "/v1/models",
        "/v1/models/{name}",
        "/health",
        "/ready",
    }
    schemas = document["components"]["schemas"]

    def references(node):
        if isinstance(node, dict):
            if "$ref" in node:
                yield node["$ref"].rpartition("/")[2]
            for value in node.values():
                yield from references(value)
        if isinstance(node, list):
            for value in node:
                yield from references(value)

    assert set(references(document)) <= set(schemas)
    assert schemas["StoryResponse"]["properties"]["interleave"]


def test_answers_have_the_documented_fields(client):
    """Every documented field, and no other."""
    for text in (HOUSE, "zzz"):
        response = client.responses.create(input=text, background=True)
        wait_until(
            lambda r=response: (
                client.responses.retrieve(r.id).status not in ("queued", "in_progress")
            )
        )
        for interleave in (response.interleave, client.responses.retrieve(response.id).interleave):
            assert GenerationModel.model_validate(interleave).model_dump() == interleave
