"""instructor: its purpose is data of a schema, which the service refuses."""

import instructor
import openai
from calls import QUESTION, URL, House, call, report

client = openai.OpenAI(base_url=URL, api_key="none", max_retries=0)
MESSAGES = [{"role": "user", "content": QUESTION}]


def ask(mode: instructor.Mode, model: type | None):
    wrapped = instructor.from_openai(client, mode=mode)
    request = {"messages": MESSAGES, "model": "interleave", "max_retries": 0}
    return wrapped.chat.completions.create(response_model=model, **request)


call("create without response_model")(
    lambda: ask(instructor.Mode.TOOLS, None).choices[0].message.content
)


for mode in (instructor.Mode.TOOLS, instructor.Mode.JSON, instructor.Mode.JSON_SCHEMA):

    @call(f"create with response_model, mode {mode.name}")
    def _(mode=mode):
        return ask(mode, House)


report()
