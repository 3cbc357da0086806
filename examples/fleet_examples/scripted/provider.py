"""The model API `scripted`: `scripted/chemist`, `scripted/student`, `scripted/public`.

Model arguments (Inspect's -M), all optional:
    seed                another seed gets other facts wrong (default 0)
    accuracy            share of facts that are right, in place of the persona's own
    latency, jitter     seconds a request takes: `latency` plus up to `jitter` more (default 0)
    rate_limit_every    every Nth request of a process is refused as a rate limit, N ≥ 2 (default: none is)
    retry_after         seconds that such a refusal asks to wait (default 0.2)
"""

import hashlib
import json
from typing import Any

import anyio
from inspect_ai.model import (
    ChatCompletionChoice,
    ChatMessage,
    ChatMessageAssistant,
    GenerateConfig,
    ModelAPI,
    ModelOutput,
    ModelUsage,
    RetryDecision,
    modelapi,
)
from inspect_ai.tool import ToolCall, ToolChoice, ToolInfo
from tenacity.wait import WaitBaseT, wait_fixed

from fleet_examples.scripted.answers import Reply, reply
from fleet_examples.scripted.conversation import Conversation, count_tokens
from fleet_examples.scripted.mind import PERSONAS, Mind


class RateLimited(Exception):
    """The answer that a busy model API gives."""

    status_code = 429


class Scripted(ModelAPI):
    """Answers by `answers.reply`: deterministic, whatever process, machine or order the requests come in."""

    def __init__(
        self,
        model_name: str,
        base_url: str | None = None,
        api_key: str | None = None,
        config: GenerateConfig = GenerateConfig(),  # noqa: B008 (Inspect's own signature)
        *,
        seed: int = 0,
        accuracy: float | None = None,
        latency: float = 0.0,
        jitter: float = 0.0,
        rate_limit_every: int = 0,
        retry_after: float = 0.2,
    ) -> None:
        super().__init__(model_name, base_url, api_key, [], config)
        if model_name not in PERSONAS:
            raise ValueError(f"no persona {model_name!r}; there are {', '.join(PERSONAS)}")
        if rate_limit_every == 1:
            raise ValueError("rate_limit_every=1 would refuse every request for ever; it is 2 or more")
        self.mind = Mind(model_name, PERSONAS[model_name] if accuracy is None else accuracy, seed)
        self.latency = latency
        self.jitter = jitter
        self.rate_limit_every = rate_limit_every
        self.retry_after = retry_after
        self.requests = 0

    async def generate(
        self,
        input: list[ChatMessage],  # noqa: A002 (Inspect's own signature)
        tools: list[ToolInfo],
        tool_choice: ToolChoice,
        config: GenerateConfig,
    ) -> ModelOutput:
        """Inspect's call. RateLimited: Inspect waits and asks again."""
        self.requests += 1
        if self.rate_limit_every and self.requests % self.rate_limit_every == 0:
            raise RateLimited("too many requests")
        text = Conversation(input).text
        if self.latency or self.jitter:
            await anyio.sleep(self.latency + self.jitter * self.mind.chance("jitter", text))
        return self._output(reply(self.mind, input, tools, tool_choice), text, tools, config)

    def _output(self, said: Reply, asked: str, tools: list[ToolInfo], config: GenerateConfig) -> ModelOutput:
        offered = json.dumps([tool.model_dump(exclude_none=True) for tool in tools], default=str) if tools else ""
        called = [{"tool": call.tool, "arguments": call.arguments} for call in said.calls]
        used = ModelUsage(
            input_tokens=count_tokens(asked) + count_tokens(offered),
            output_tokens=max(1, count_tokens(said.text) + (count_tokens(json.dumps(called)) if called else 0)),
        )
        used.total_tokens = used.input_tokens + used.output_tokens
        cut = bool(config.max_tokens and used.output_tokens > config.max_tokens and not called)
        content = " ".join(said.text.split()[: config.max_tokens]) if cut else said.text
        if cut:
            used.output_tokens = config.max_tokens or 0
            used.total_tokens = used.input_tokens + used.output_tokens
        name = hashlib.sha256(asked.encode()).hexdigest()[:12]
        message = ChatMessageAssistant(
            content=content,
            model=self.model_name,
            source="generate",
            tool_calls=[
                ToolCall(id=f"call_{name}_{place}", function=call.tool, arguments=call.arguments)
                for place, call in enumerate(said.calls)
            ]
            or None,
        )
        stop = "tool_calls" if called else "max_tokens" if cut else "stop"
        return ModelOutput(
            model=self.model_name, choices=[ChatCompletionChoice(message=message, stop_reason=stop)], usage=used
        )

    async def count_text_tokens(self, text: str) -> int:
        """The same count as in the usage; Inspect's default would download a tokenizer."""
        return count_tokens(text)

    def should_retry(self, ex: Exception) -> RetryDecision:
        """A rate limit is waited out, anything else is an error."""
        return RetryDecision.rate_limit(self.retry_after) if isinstance(ex, RateLimited) else RetryDecision.no()

    def retry_wait(self) -> WaitBaseT:
        """As long as the refusal asks for: Inspect's own back-off starts at three seconds."""
        return wait_fixed(self.retry_after)


@modelapi(name="scripted")
def scripted() -> Any:
    """The class, as Inspect wants it."""
    return Scripted
