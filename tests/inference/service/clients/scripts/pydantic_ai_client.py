"""pydantic-ai, with both APIs."""

import asyncio

from calls import QUESTION, URL, House, call, report
from pydantic_ai import Agent, BinaryContent, BinaryImage, ImageGenerationTool
from pydantic_ai.capabilities import NativeTool
from pydantic_ai.models.openai import OpenAIChatModel, OpenAIResponsesModel
from pydantic_ai.providers.openai import OpenAIProvider

provider = OpenAIProvider(base_url=URL, api_key="none")
chat = OpenAIChatModel("interleave", provider=provider)
# Of a model that it does not know, pydantic-ai has to be told that it draws.
draws = {"supports_image_output": True}
responses = OpenAIResponsesModel("interleave", provider=provider, profile=draws)


for name, model in (("chat", chat), ("responses", responses)):

    @call(f"{name}: run")
    def _(model=model):
        result = Agent(model, instructions="Draw.").run_sync(QUESTION)
        return result.output and result.usage is not None

    @call(f"{name}: run_stream")
    def _(model=model):
        async def ask():
            async with Agent(model).run_stream(QUESTION) as result:
                return await result.get_output()

        return asyncio.run(ask())

    @call(f"{name}: conversation")
    def _(model=model):
        agent = Agent(model)
        first = agent.run_sync(QUESTION)
        return agent.run_sync("Add a sun", message_history=first.all_messages()).output

    @call(f"{name}: output_type")
    def _(model=model):
        return Agent(model, output_type=House).run_sync(QUESTION)

    @call(f"{name}: tool")
    def _(model=model):
        agent = Agent(model)
        agent.tool_plain(lambda: "red", name="colour")
        return agent.run_sync(QUESTION)


@call("responses: image output")
def _():
    agent = Agent(
        responses, output_type=BinaryImage, capabilities=[NativeTool(ImageGenerationTool())]
    )
    return agent.run_sync(QUESTION).output.data


@call("responses: image input")
def _():
    agent = Agent(
        responses, output_type=BinaryImage, capabilities=[NativeTool(ImageGenerationTool())]
    )
    image = agent.run_sync(QUESTION).output
    given = ["Add a yellow sun", BinaryContent(image.data, media_type=image.media_type)]
    return Agent(responses).run_sync(given).output


report()
