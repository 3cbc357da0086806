"""What the merge has written down of samples and jobs, read line by line: only the places of lines are kept in memory.

Inspect goes through the samples of a log once for their scores and once for their errors. What it makes of them has to be in
memory as a whole; the samples haven't.
"""

from __future__ import annotations

import json
from array import array
from collections.abc import Iterator
from functools import lru_cache
from typing import Any, BinaryIO, cast

from inspect_ai.log import EvalError, EvalSample
from inspect_ai.scorer import Score

_BLANK = EvalSample.model_construct(id=0, epoch=1, input="", target="")
"""What is copied for each sample: pydantic would look at the defaults of all thirty fields anew each time, for a millisecond."""
_FAILED = EvalError(message="", traceback="", traceback_ansi="")

_SHORT = 100
"""Characters of a text that is worth keeping: a thousand explanations could take a hundred megabytes, and are hardly equal."""

_kept = lru_cache(maxsize=1000)(str)


class Records:
    """Records of one kind in their own order, each decoded when it is its turn."""

    def __init__(self, file: BinaryIO, placed: list[tuple[Any, int]]) -> None:
        """`placed`: what each is sorted by, and where its line begins."""
        self._file = file
        self._starts = array("Q", (start for _, start in sorted(placed)))

    def __len__(self) -> int:
        return len(self._starts)

    def __iter__(self) -> Iterator[Any]:
        for start in self._starts:
            self._file.seek(start)
            yield self._made(json.loads(self._file.readline(), object_pairs_hook=_sharing))

    def _made(self, record: dict[str, Any]) -> Any:
        return record


class LightSamples(Records):
    """As much of the samples as metrics are given, in the order of the log."""

    def _made(self, record: dict[str, Any]) -> EvalSample:
        scores = record["scores"]
        light = {
            "id": record["id"],
            "epoch": record["epoch"],
            "scores": None if scores is None else {name: Score.model_validate(score) for name, score in scores.items()},
            "metadata": record["metadata"],
            "error": _FAILED if record["failed"] else None,
        }
        return _BLANK.model_copy(update=light)

    def of_a_log(self) -> list[EvalSample]:
        """Themselves, by the type that a log has them as: it is gone through, and counted."""
        return cast("list[EvalSample]", self)


def _same(value: Any) -> Any:
    """A short text that was seen of late, instead of an equal one: samples have names, groups and answers in common."""
    return _kept(value) if type(value) is str and len(value) <= _SHORT else value


def _sharing(members: list[tuple[str, Any]]) -> dict[str, Any]:
    return {_same(name): _same(value) for name, value in members}


def sorted_out(file: BinaryIO) -> tuple[LightSamples, Records, bool]:
    """The samples of a file of records, the usage of its jobs, and whether there is a sample to measure."""
    samples: list[tuple[Any, int]] = []
    usage: list[tuple[Any, int]] = []
    measured = False
    start = file.tell()
    for line in iter(file.readline, b""):
        record = json.loads(line)
        if "job" in record:
            usage.append((record["job"], start))  # sums of floats depend on their order, so that it is always the same
        else:
            samples.append((tuple(record["place"]), start))
            measured = measured or not record["failed"] or bool(record["scores"])
        start += len(line)
    return LightSamples(file, samples), Records(file, usage), measured
