"""The OpenAPI document agrees with the routes and their answers."""

import re

from inference.service.response_builder import GenerationModel
from tests.inference.service.running_service import HOUSE, wait_until


def test_the_document_has_every_route_and_schema(service):
    document = service.get("/openapi.json").json()
    assert set(document["paths"]) == {
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
        "/studio/generations",
        "/studio/generations/{response_id}",
        "/studio/generations/{response_id}.{ending}",
        "/studio/generations/{response_id}/pictures/{sha256}",
        "/studio/settings",
        "/studio/benchmarks",
        "/studio/benchmarks/report",
        "/studio/costs",
        "/studio/branches",
        "/studio/reviews",
        "/studio/reviews/{shard}",
        "/studio/reviews/{shard}/{review_id}",
        "/studio/reviews/{shard}/pictures/{sha256}",
    }
    for operations in document["paths"].values():
        assert all({"200", "default"} == set(each["responses"]) for each in operations.values())
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
    assert schemas["InterleavedResponse"]["properties"]["interleave"]


def test_a_page_shows_the_document_without_scripts(service):
    response, document = service.get("/docs"), service.get("/openapi.json").json()
    page = response.text
    assert response.headers["Content-Type"] == "text/html; charset=utf-8"
    assert "default-src 'none'" in response.headers["Content-Security-Policy"]
    assert "<script" not in page and "style=" not in page and " src=" not in page
    links, ids = set(re.findall('href="#([^"]+)"', page)), re.findall('id="([^"]+)"', page)
    assert links <= set(ids) and len(ids) == len(set(ids))
    for path, operations in document["paths"].items():
        for method, operation in operations.items():
            assert f"<code>{method.upper()} {path}</code>" in page
            assert operation["operationId"] in ids
            for each in operation.get("parameters", ()):
                assert f"<code>{each['name']}</code>" in page
    assert set(document["components"]["schemas"]) <= set(ids)


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
