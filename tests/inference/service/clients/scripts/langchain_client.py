"""LangChain's `ChatOpenAI`, with both APIs."""

from calls import QUESTION, URL, House, call, report
from langchain_core.messages import AIMessage, HumanMessage
from langchain_openai import ChatOpenAI

SETTINGS = {"base_url": URL, "api_key": "none", "model": "interleave", "max_retries": 0}
chat = ChatOpenAI(**SETTINGS)
responses = ChatOpenAI(**SETTINGS, use_responses_api=True)


def colour_of(text: str) -> str:
    """The colour of a house."""
    return text


for name, model in (("chat", chat), ("responses", responses)):

    @call(f"{name}: invoke")
    def _(model=model):
        message = model.invoke(QUESTION)
        return message.text and message.usage_metadata["total_tokens"] >= 0

    @call(f"{name}: stream")
    def _(model=model):
        return "".join(chunk.text for chunk in model.stream(QUESTION))

    @call(f"{name}: batch")
    def _(model=model):
        return len(model.batch([QUESTION, QUESTION])) == 2

    @call(f"{name}: conversation")
    def _(model=model):
        answer = model.invoke(QUESTION)
        assert isinstance(answer, AIMessage)
        return model.invoke([HumanMessage(QUESTION), answer, HumanMessage("Add a sun")]).text

    @call(f"{name}: with_structured_output")
    def _(model=model):
        return model.with_structured_output(House).invoke(QUESTION)

    @call(f"{name}: bind_tools")
    def _(model=model):
        return model.bind_tools([colour_of]).invoke(QUESTION)


@call("responses: tool image_generation")
def _():
    message = responses.bind_tools([{"type": "image_generation"}]).invoke(QUESTION)
    return [block for block in message.content_blocks if block["type"] == "image"]


@call("chat: image")
def _():
    answer = responses.invoke(QUESTION)
    image = next(block for block in answer.content_blocks if block["type"] == "image")
    uri = f"data:image/png;base64,{image['base64']}"
    parts = [
        {"type": "text", "text": "Add a yellow sun"},
        {"type": "image_url", "image_url": {"url": uri}},
    ]
    return chat.invoke([HumanMessage(parts)]).text


report()
