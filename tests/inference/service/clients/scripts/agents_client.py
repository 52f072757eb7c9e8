"""OpenAI's Agents SDK, with both APIs."""

import asyncio

from agents import (
    Agent,
    ImageGenerationTool,
    OpenAIChatCompletionsModel,
    OpenAIResponsesModel,
    Runner,
    function_tool,
    set_tracing_disabled,
)
from calls import QUESTION, URL, House, call, report
from openai import AsyncOpenAI

set_tracing_disabled(True)


@function_tool
def colour_of(house: str) -> str:
    """The colour of a house."""
    return house


def agent(kind: type, **settings) -> Agent:
    client = AsyncOpenAI(base_url=URL, api_key="none", max_retries=0)
    return Agent("Painter", model=kind(model="interleave", openai_client=client), **settings)


for name, kind in (("chat", OpenAIChatCompletionsModel), ("responses", OpenAIResponsesModel)):

    @call(f"{name}: run")
    def _(kind=kind):
        return Runner.run_sync(agent(kind, instructions="Draw."), QUESTION).final_output

    @call(f"{name}: run_streamed")
    def _(kind=kind):
        async def ask():
            result = Runner.run_streamed(agent(kind), QUESTION)
            async for _ in result.stream_events():
                pass
            return result.final_output

        return asyncio.run(ask())

    @call(f"{name}: conversation")
    def _(kind=kind):
        first = Runner.run_sync(agent(kind), QUESTION)
        turns = [*first.to_input_list(), {"role": "user", "content": "Add a yellow sun"}]
        return Runner.run_sync(agent(kind), turns).final_output

    @call(f"{name}: output_type")
    def _(kind=kind):
        return Runner.run_sync(agent(kind, output_type=House), QUESTION)

    @call(f"{name}: function_tool")
    def _(kind=kind):
        return Runner.run_sync(agent(kind, tools=[colour_of]), QUESTION)


@call("responses: ImageGenerationTool")
def _():
    tool = ImageGenerationTool({"type": "image_generation", "output_format": "webp"})
    result = Runner.run_sync(agent(OpenAIResponsesModel, tools=[tool]), QUESTION)
    calls = [item.raw_item for item in result.new_items if item.type == "tool_call_item"]
    return calls and all(each.result for each in calls)


@call("responses: previous_response_id")
def _():
    painter = agent(OpenAIResponsesModel)
    first = Runner.run_sync(painter, QUESTION)
    more = {"previous_response_id": first.last_response_id}
    return Runner.run_sync(painter, "Add a yellow sun", **more).final_output


report()
