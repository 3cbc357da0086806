"""Records come in the order of the log, whatever order they were written in, as often as they are asked for."""

from __future__ import annotations

import io
import json
from typing import Any

from bootstrap.runner.records import sorted_out


def sample(place: list[Any], *, failed: bool = False, scores: Any = None) -> dict[str, Any]:
    name = f"s{place[1]}"
    return {"place": place, "id": name, "epoch": place[0], "scores": scores, "metadata": {"of": name}, "failed": failed}


def usage(job: int) -> dict[str, Any]:
    return {"job": job, "model_usage": {}, "role_usage": {}}


def written(*records: dict[str, Any]) -> io.BytesIO:
    return io.BytesIO("".join(json.dumps(record, ensure_ascii=False) + "\n" for record in records).encode())


def test_samples_and_usage_come_sorted_and_again() -> None:
    right = {"match": {"value": "C", "explanation": "größer"}}
    file = written(usage(1), sample([2, 0, ""]), usage(0), sample([1, 1, ""], scores=right), sample([1, 0, ""]))
    samples, jobs, measured = sorted_out(file)
    for _ in range(2):
        assert [(one.epoch, one.id, one.metadata) for one in samples] == [
            (1, "s0", {"of": "s0"}),
            (1, "s1", {"of": "s1"}),
            (2, "s0", {"of": "s0"}),
        ]
        assert [one["job"] for one in jobs] == [0, 1]
    assert (len(samples), len(jobs), measured) == (3, 2, True)
    (scored,) = (one for one in samples if one.scores)
    assert (scored.scores["match"].value, scored.scores["match"].explanation) == ("C", "größer")


def test_failed_samples_without_a_score_are_nothing_to_measure() -> None:
    assert not sorted_out(written(sample([1, 0, ""], failed=True), usage(0)))[2]
    assert sorted_out(written(sample([1, 0, ""], failed=True, scores={"match": {"value": 1}})))[2]
    (failed,) = sorted_out(written(sample([1, 0, ""], failed=True)))[0]
    assert failed.error is not None


def test_equal_texts_of_samples_are_one() -> None:
    """Of ten thousand samples, each name of a piece of metadata is kept once, and each answer that many gave."""
    score = {"match": {"value": "right", "answer": "blue"}}
    file = written(*(sample([1, number, ""], scores=score) for number in range(2)))
    (one, other), _, _ = sorted_out(file)
    assert one.scores is not None
    assert other.scores is not None
    assert one.scores["match"].answer is other.scores["match"].answer
    assert next(iter(one.metadata)) is next(iter(other.metadata))


def test_a_long_text_is_kept_by_nobody_but_its_sample() -> None:
    """A thousand explanations of a hundred kilobytes would be a hundred megabytes."""
    score = {"match": {"value": 1, "answer": "a" * 100, "explanation": "b" * 101}}
    file = written(*(sample([1, number, ""], scores=score) for number in range(2)))
    one, other = ((sample.scores or {})["match"] for sample in sorted_out(file)[0])
    assert one.answer is other.answer
    assert one.explanation == other.explanation
    assert one.explanation is not other.explanation
