"""What EC2 announces, what it means for a job and for a worker, and a worker that is told."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from bootstrap.identity import Metadata, MetadataUnclear
from bootstrap.notices import (
    FINISH_SECONDS,
    INTERRUPTION,
    MARGIN_SECONDS,
    POLL_SECONDS,
    REBALANCE,
    Notice,
    NoticeWatch,
    fits,
    heeds,
    read_notice,
)
from tests.bootstrap.metadata import FakeMetadata, serving
from tests.bootstrap.world import Script, World

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
TERMINATE = '{"action": "terminate", "time": "2026-01-01T12:02:00Z"}'
RECOMMEND = '{"noticeTime": "2026-01-01T11:59:00Z"}'


@pytest.mark.parametrize(
    ("said", "notice"),
    [
        pytest.param({}, None, id="nothing: 404 for both"),
        pytest.param(
            {INTERRUPTION: TERMINATE},
            Notice("interruption", NOON + timedelta(minutes=2), "terminate"),
            id="an interruption",
        ),
        pytest.param({REBALANCE: RECOMMEND}, Notice("rebalance", NOON - timedelta(minutes=1)), id="a recommendation"),
        pytest.param(
            {REBALANCE: RECOMMEND, INTERRUPTION: TERMINATE},
            Notice("interruption", NOON + timedelta(minutes=2), "terminate"),
            id="of both, the interruption",
        ),
        pytest.param(
            {INTERRUPTION: '{"action": "hibernate", "time": null}'},
            Notice("interruption", NOON, "hibernate"),
            id="no time: now",
        ),
        pytest.param({REBALANCE: '{"noticeTime": 7}'}, Notice("rebalance", NOON), id="a recommendation of no time"),
    ],
)
def test_what_the_service_says_is_read_as_aws_writes_it(said: dict[str, str], notice: Notice | None) -> None:
    assert read_notice(said.get, NOON) == notice


ODD = [
    "",
    "soon",
    "[]",
    "{}",
    "null",
    "<html>log in</html>",
    '{"error": "unavailable"}',
    '{"time": "now"}',
    "[" * 100_000,
]


@pytest.mark.parametrize("text", ODD, ids=range(len(ODD)))
@pytest.mark.parametrize("path", [INTERRUPTION, REBALANCE])
@pytest.mark.fault("odd-answer")
def test_what_is_no_document_of_ec2s_announces_nothing_and_ends_nobody(path: str, text: str, tmp_path: Path) -> None:
    """A proxy's page, or half an answer: to leave for it would cost a good instance."""
    with pytest.raises(MetadataUnclear, match="is no notice"):
        read_notice({path: text}.get, NOON)
    there = Announced(tmp_path, 1)
    there.said[path] = text
    assert there.world.work() == ["idle"]
    assert there.world.results() == there.world.jobs
    assert len([line for line in there.world.said if "it is asked on" in line]) == 1


@pytest.mark.parametrize(
    ("elapsed", "durations", "left", "does"),
    [
        pytest.param(5, [], 90, False, id="nothing is known"),
        pytest.param(5, [60], 90, True, id="one took no longer than is left"),
        pytest.param(5, [100], 90, False, id="one took too long"),
        pytest.param(50, [100], 90, True, id="most of it is done"),
        pytest.param(100, [20, 60, 80], 90, False, id="longer than any: nothing is known"),
        pytest.param(
            50, [10, 20, 60, 70, 1000], 90, True, id="two of three that took longer than it by now are in time"
        ),
        pytest.param(5, [10, 300, 400], 90, False, id="most aren't"),
        pytest.param(5, [10], 5, True, id="just in time"),
        pytest.param(5, [6], -3, False, id="no time is left"),
    ],
)
@pytest.mark.fault("spot-notice")
def test_a_job_fits_if_it_is_more_likely_done_than_not(
    elapsed: float, durations: Sequence[float], left: float, does: bool
) -> None:
    assert fits(elapsed, durations, left=left) is does


@pytest.mark.parametrize(
    ("fleet_size", "durations", "does"),
    [
        pytest.param(4, [], True, id="nothing was done here: it isn't known whether a notice would be enough"),
        pytest.param(4, [[], [600, 700]], True, id="long jobs"),
        pytest.param(4, [[10, 20, 900], [30]], False, id="most jobs are done within a notice's time"),
        pytest.param(1, [[600]], False, id="nobody else would take its jobs"),
        pytest.param(1, [], False, id="nor here"),
    ],
)
@pytest.mark.fault("rebalance")
def test_a_recommendation_is_heeded_where_a_notice_would_come_too_late(
    fleet_size: int, durations: Sequence[Sequence[float]], does: bool
) -> None:
    assert heeds(fleet_size, durations) is does


class Announced:
    """A metadata service, and a worker that asks it, in a world whose day begins at noon."""

    def __init__(self, folder: Path, jobs: int, *, fleet_size: int = 2) -> None:
        self.world = World(folder, jobs, slots=4)
        self.said: dict[str, str] = {}
        self.asked: list[float] = []
        self.fails: OSError | None = None
        self.world.beside.append(
            NoticeWatch(
                self._get,
                fleet_size=fleet_size,
                clockwork=self.world.time.clockwork(),
                say=self.world.said.append,
                wall=lambda: NOON + timedelta(seconds=self.world.time.now),
            )
        )

    def _get(self, path: str) -> str | None:
        if path == INTERRUPTION:
            self.asked.append(self.world.time.now)
        if self.fails:
            raise self.fails
        return self.said.get(path)

    def announce(self, at: float, path: str, text: str) -> None:
        self.world.at(at, lambda: self.said.update({path: text}))


@pytest.mark.fault("spot-notice")
def test_a_spot_notice_ends_the_work_in_time_and_what_does_not_fit_is_back_within_seconds(tmp_path: Path) -> None:
    """Jobs of 40 s and of 500 s; the notice comes at 60 s, and the end at 120 s."""
    there = Announced(tmp_path, 12)
    world = there.world
    for place, job in enumerate(world.jobs):
        world.scripts[job] = Script(seconds=500 if place == 0 else 40)
    there.announce(60, INTERRUPTION, TERMINATE)
    seen: list[list[str]] = []
    world.at(60 + POLL_SECONDS + 1, lambda: seen.append(world.waiting()))
    assert world.work() == ["interrupted"]
    # At 60 s the first job is older than any that was done; three of the others began at 40 s.
    assert seen[0] == [world.jobs[0], *world.jobs[7:]], "intake has stopped too: their slots stay empty"
    assert world.results() == world.jobs[1:7]
    assert world.time.now == 80, "it ends with its last job, and waits for nothing"
    kinds = [event for event in world.queues.events if event.kind in ("notice", "given_back")]
    assert [(event.kind, event.detail) for event in kinds] == [
        ("notice", {"kind": "interruption", "at": "2026-01-01T12:02:00Z", "heeded": True}),
        ("given_back", {"jobs": [world.jobs[0]]}),
    ]
    assert world.workers[0].why == "EC2 takes this instance back (terminate at 2026-01-01T12:02:00Z)"


@pytest.mark.fault("spot-notice")
def test_a_job_that_was_thought_to_fit_is_given_back_before_the_end(tmp_path: Path) -> None:
    there = Announced(tmp_path, 8)
    world = there.world
    for place, job in enumerate(world.jobs):
        world.scripts[job] = Script(seconds=40 if place < 4 else 500)
    there.announce(60, INTERRUPTION, TERMINATE)
    assert world.work() == ["interrupted"]
    assert world.results() == world.jobs[:4]
    assert world.waiting() == world.jobs[4:]
    assert world.time.now == 120 - MARGIN_SECONDS


@pytest.mark.fault("rebalance")
def test_a_recommendation_lets_what_runs_finish_within_its_time(tmp_path: Path) -> None:
    there = Announced(tmp_path, 12)
    world = there.world
    for place, job in enumerate(world.jobs):
        world.scripts[job] = Script(seconds=1000 if place else 2 * FINISH_SECONDS)
    there.announce(60, REBALANCE, RECOMMEND)
    assert world.work() == ["interrupted"]
    assert world.results() == world.jobs[1:4]
    assert world.waiting() == [world.jobs[0], *world.jobs[4:]]
    assert world.time.now == 60 + FINISH_SECONDS
    assert any("EC2 recommended to replace this instance at 2026-01-01T11:59:00Z" in line for line in world.said)


@pytest.mark.fault("rebalance")
def test_a_notice_after_a_recommendation_ends_what_was_let_finish(tmp_path: Path) -> None:
    there = Announced(tmp_path, 12)
    world = there.world
    for job in world.jobs:
        world.scripts[job] = Script(seconds=1000)
    there.announce(20, REBALANCE, RECOMMEND)
    there.announce(60, INTERRUPTION, TERMINATE)
    assert world.work() == ["interrupted"]
    assert world.waiting() == world.jobs
    assert world.time.now <= 60 + POLL_SECONDS
    assert "terminate at" in world.workers[0].why


@pytest.mark.fault("rebalance")
def test_an_only_instance_goes_on_for_a_recommendation_and_says_so_once(tmp_path: Path) -> None:
    there = Announced(tmp_path, 12, fleet_size=1)
    world = there.world
    for job in world.jobs:
        world.scripts[job] = Script(seconds=200)
    there.announce(20, REBALANCE, RECOMMEND)
    assert world.work() == ["idle"]
    assert world.results() == world.jobs
    (event,) = [event for event in world.queues.events if event.kind == "notice"]
    assert event.detail["heeded"] is False
    assert len([line for line in world.said if "recommended" in line]) == 1


def test_a_service_that_does_not_answer_is_told_once_and_asked_on(tmp_path: Path) -> None:
    there = Announced(tmp_path, 1)
    world = there.world
    world.scripts[world.jobs[0]] = Script(seconds=500)
    there.fails = TimeoutError("timed out")
    world.at(100, lambda: setattr(there, "fails", None))
    there.announce(102, INTERRUPTION, TERMINATE)
    assert world.work() == ["interrupted"]
    assert [line for line in world.said if "timed out" in line] == [
        "the metadata service doesn't say whether EC2 takes this instance back (timed out); it is asked on"
    ]
    assert there.asked == [POLL_SECONDS * n for n in range(22)]


def test_the_metadata_service_is_asked_as_it_wants_to_be() -> None:
    """By a real one, with tokens; a token that has run out is renewed."""
    with serving(FakeMetadata(values={REBALANCE: RECOMMEND}, expire_after=3)) as fake:
        metadata = Metadata({"AWS_EC2_METADATA_SERVICE_ENDPOINT": fake.endpoint})
        found = [read_notice(metadata.get, NOON) for _ in range(3)]
        assert found == [Notice("rebalance", NOON - timedelta(minutes=1))] * 3
        fake.values[INTERRUPTION] = TERMINATE
        assert read_notice(metadata.get, NOON) == Notice("interruption", NOON + timedelta(minutes=2), "terminate")
        assert len(fake.tokens) == 2
