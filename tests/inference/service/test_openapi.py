"""The OpenAPI document: true of the routes, and of what they answer."""

from inference.service.responses.response_models import GenerationModel
from tests.inference.service.running_service import HOUSE, until


def test_the_document_is_true(service):
    document = service.get("/openapi.json").json()
    ours = {path for path in document["paths"] if not path.startswith("/studio/")}
    assert ours == {
        "/v1/responses",
        "/v1/responses/{response_id}",
        "/v1/responses/{response_id}/cancel",
        "/v1/chat/completions",
        "/v1/models",
        "/v1/models/{name}",
        "/health",
        "/ready",
    }
    schemas = document["components"]["schemas"]

    def referred(node):
        if isinstance(node, dict):
            if "$ref" in node:
                yield node["$ref"].rpartition("/")[2]
            for value in node.values():
                yield from referred(value)
        if isinstance(node, list):
            for value in node:
                yield from referred(value)

    assert set(referred(document)) <= set(schemas)
    assert schemas["StoryResponse"]["properties"]["interleave"]


def test_answers_are_of_the_documents_shapes(client):
    """Every field that is described is there, and no other."""
    for asked in (HOUSE, "zzz"):
        response = client.responses.create(input=asked, background=True)
        until(
            lambda r=response: (
                client.responses.retrieve(r.id).status not in ("queued", "in_progress")
            )
        )
        for story in (response.interleave, client.responses.retrieve(response.id).interleave):
            described = GenerationModel.model_validate(story)
            assert described.model_dump() == story
