"""OpenAI's interface: models, chats and completions, beside the document's (decision 0160).

The engine, limits, prices, tokens and log are those of ``POST /api/v1/inference``. Checks come in
the same order: rate limit of the address, bearer token, rate limit of the token (``http.access``),
then whether the node drains, media type, body, rules of the request.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

from quart import request

from meshnode.domain.chat_rules import ChatRequest, ToolChoice, chat_request
from meshnode.domain.errors import InvalidRequest, ModelNotServed, Unavailable
from meshnode.domain.openai_rules import choices, completion_request
from meshnode.domain.tokens import Scope
from meshnode.domain.tool_calls import ToolCallParser
from meshnode.http.access import bearer
from meshnode.http.app import Response, json_response
from meshnode.http.body import read_json_object
from meshnode.http.exchange import hold, request_id, request_record
from meshnode.http.openai_answers import Heading, Usages, collect_choices, stream_choices
from meshnode.http.openai_bodies import (
    OPENAI_EVENT,
    ChatCompletion,
    ChatCompletionRequest,
    CompletionRequestBody,
    Model,
    Models,
    TextCompletion,
)
from meshnode.http.openai_choices import CHAT, CHAT_CHUNK, TEXT, ChatChoice, TextChoice
from meshnode.http.routes import JSON_TYPE, Reply, Route
from meshnode.wire import sse

if TYPE_CHECKING:
    from meshnode.domain.generation import GenerationRequest
    from meshnode.http.openai_choices import Choice
    from meshnode.services.chat import ChatPrompts
    from meshnode.services.executor import Versions
    from meshnode.services.wallet.serving import Serving
    from meshnode.supervise import Drain

BASE = "/v1"


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenaiApi:
    """The owners that the routes ask, and the routes."""

    name: str
    """The model's id in requests and answers."""
    context_length: int
    versions: Versions
    """The weights that answer."""
    serving: Serving
    chat: ChatPrompts
    drain: Drain
    started_at: int
    """Seconds since the epoch."""
    clock: Callable[[], float] = time.time

    async def get_models(self) -> Response:
        """The one model that this node serves."""
        answer: Models = {"object": "list", "data": [self._model()]}
        return json_response(answer)

    async def get_model(self) -> Response:
        """A model by its id."""
        self._require_model(str((request.view_args or {})["model"]))
        return json_response(self._model())

    async def post_chat(self) -> Response:
        """Answer a conversation."""
        self._refuse_while_draining()
        wanted = chat_request(await read_json_object(request))
        self._require_model(wanted.model)
        prompt = await self.chat.prompt(wanted.messages, wanted.tools)
        one = replace(
            wanted.sampling.request(prompt.text),
            special_tokens=prompt.special_tokens,
            end_tokens=prompt.end_tokens,
            json_schema=wanted.json_schema,
        )
        try:
            return await self._answer(
                choices(one, wanted.n),
                [self._chat_choice(index, wanted) for index in range(wanted.n)],
                partial(self._heading, "chatcmpl", CHAT, CHAT_CHUNK),
                stream=wanted.stream,
                include_usage=wanted.include_usage,
            )
        except InvalidRequest as error:
            raise _in_words_of_chats(error, wanted) from None

    async def post_completion(self) -> Response:
        """Continue one or several texts."""
        self._refuse_while_draining()
        wanted = completion_request(await read_json_object(request))
        self._require_model(wanted.model)
        return await self._answer(
            wanted.requests,
            [TextChoice(index) for index in range(len(wanted.requests))],
            partial(self._heading, "cmpl", TEXT, TEXT),
            stream=wanted.stream,
            include_usage=wanted.include_usage,
            prompts=wanted.prompts,
        )

    async def _answer(
        self,
        wanted: Sequence[GenerationRequest],
        shown: Sequence[Choice],
        headed: Callable[[str], Heading],
        *,
        stream: bool,
        include_usage: bool,
        prompts: int = 1,
    ) -> Response:
        usages = Usages(prompts, len(wanted))
        request_record().streamed = stream
        async with AsyncExitStack() as stack:
            record = bearer()
            # All or none: if one cannot be opened, those before it are left, and cost nothing.
            generations = [
                await stack.enter_async_context(await self.serving.open(record, each))
                for each in wanted
            ]
            # The weights that the answer began with are those that it ends with.
            heading = headed(generations[0].model_hash or self.versions.current.model_hash)
            if not stream:
                return await collect_choices(generations, shown, heading, usages)
            await hold(stack.pop_all())
        return stream_choices(generations, shown, heading, usages, include_usage=include_usage)

    def _chat_choice(self, index: int, wanted: ChatRequest) -> ChatChoice:
        parser = ToolCallParser(
            [tool["function"]["name"] for tool in wanted.tools],
            only_calls=wanted.tool_choice is ToolChoice.REQUIRED,
            named=wanted.tool_name,
            parallel=wanted.parallel_tool_calls,
        )
        forced = wanted.tool_choice is ToolChoice.NAMED
        return ChatChoice(index, parser, strip=self.chat.plain, forced=forced)

    def _heading(self, prefix: str, kind: str, chunk: str, model_hash: str) -> Heading:
        # The request's id is in the log, beside what the request cost.
        identifier = f"{prefix}-{request_id()}"
        fingerprint = f"fp_{model_hash[:16]}"
        return Heading(identifier, kind, chunk, int(self.clock()), self.name, fingerprint)

    def _model(self) -> Model:
        return {
            "id": self.name,
            "object": "model",
            "created": self.started_at,
            "owned_by": "meshnode",
            "max_model_len": self.context_length,
            "model_hash": self.versions.current.model_hash,
            "weights_version": self.versions.current.weights.version,
        }

    def _require_model(self, name: str) -> None:
        if name != self.name:
            raise ModelNotServed(self.name)

    def _refuse_while_draining(self) -> None:
        if self.drain.draining:
            raise Unavailable("the node is draining")


def _in_words_of_chats(error: InvalidRequest, wanted: ChatRequest) -> InvalidRequest:
    """The same failure about the parameter that the client sent."""
    field = {"prompt": "messages", "json_schema": wanted.schema_field}.get(error.field or "")
    return error if field is None else type(error)(field, error.reason)


EVENTS = sse.MEDIA_TYPE

ROUTES = (
    Route(
        "GET",
        BASE + "/models",
        OpenaiApi.get_models,
        "The models that this node serves",
        Models,
        name="listModels",
        scope=Scope.INFER,
    ),
    Route(
        "GET",
        BASE + "/models/<path:model>",
        OpenaiApi.get_model,
        "One model",
        Model,
        name="retrieveModel",
        scope=Scope.INFER,
    ),
    Route(
        "POST",
        BASE + "/chat/completions",
        OpenaiApi.post_chat,
        "Answer a conversation, as one answer or as a stream of chunks",
        (Reply(200, "Success.", {JSON_TYPE: ChatCompletion, EVENTS: OPENAI_EVENT}),),
        name="createChatCompletion",
        scope=Scope.INFER,
        body=ChatCompletionRequest,
        example={"model": "default", "messages": [{"role": "user", "content": "Hello"}]},
        errors=(402, 404, 503),
    ),
    Route(
        "POST",
        BASE + "/completions",
        OpenaiApi.post_completion,
        "Continue one or several texts, as one answer or as a stream of chunks",
        (Reply(200, "Success.", {JSON_TYPE: TextCompletion, EVENTS: OPENAI_EVENT}),),
        name="createCompletion",
        scope=Scope.INFER,
        body=CompletionRequestBody,
        example={"model": "default", "prompt": "Once upon a time", "max_tokens": 16},
        errors=(402, 404, 503),
    ),
)
