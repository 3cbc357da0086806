from pathlib import Path
from typing import Any

import pytest
from inspect_ai import eval as inspect_eval
from inspect_ai.log import EvalLog
from inspect_ai.model import ChatMessageUser, GenerateConfig, get_model

from fleet_examples.elements import elements
from fleet_examples.scripted.provider import Scripted


def run(folder: Path, **model_args: Any) -> EvalLog:
    model = get_model("scripted/chemist", memoize=False, **model_args)
    [log] = inspect_eval(elements(), model=model, limit=6, log_dir=str(folder), display="none")
    assert log.status == "success", log.error
    return log


def test_rate_limits_are_retried_and_change_no_answer(tmp_path: Path) -> None:
    limited = run(tmp_path / "limited", rate_limit_every=3, retry_after=0.01)
    free = run(tmp_path / "free")
    assert [sample.output.completion for sample in limited.samples or []] == [
        sample.output.completion for sample in free.samples or []
    ]
    assert limited.stats.model_usage == free.stats.model_usage


@pytest.mark.anyio
async def test_every_nth_request_is_refused_as_a_rate_limit() -> None:
    model = Scripted("public", rate_limit_every=2)
    asked = [ChatMessageUser(content="Hello there")]
    await model.generate(list(asked), [], "auto", GenerateConfig())
    with pytest.raises(Exception, match="too many requests") as refused:
        await model.generate(list(asked), [], "auto", GenerateConfig())
    assert model.should_retry(refused.value).kind == "rate_limit"
    assert not model.should_retry(ValueError("a bug"))


@pytest.mark.anyio
async def test_usage_is_counted_and_max_tokens_kept() -> None:
    model = Scripted("public")
    asked = [ChatMessageUser(content="Plan a birthday party for a climber.")]
    whole = await model.generate(list(asked), [], "auto", GenerateConfig())
    cut = await model.generate(list(asked), [], "auto", GenerateConfig(max_tokens=3))
    assert whole.usage is not None
    assert whole.usage.total_tokens == whole.usage.input_tokens + whole.usage.output_tokens > 10
    assert cut.usage is not None
    assert (cut.stop_reason, cut.usage.output_tokens) == ("max_tokens", 3)


def test_an_unknown_persona_is_refused_by_name() -> None:
    with pytest.raises(ValueError, match="no persona 'pirate'; there are chemist, student, public"):
        Scripted("pirate")
