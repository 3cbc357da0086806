"""Results that can't be used are found while there is a fleet: each is set aside, and only its job is sent again."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from typing import Any, cast

import pytest

from fleet.aws.failures import AwsRefused
from fleet.aws.objects import StoredObject
from fleet.evals.documents import JobMessage
from fleet.evals.layout import Layout
from fleet.evals.preparation import stored_results
from fleet.evals.result_checks import AGAIN_S, MOST_AGAIN, MOST_LOOKS, ResultChecks
from fleet.evals.site import Site
from tests.archives import zip_of

pytestmark = pytest.mark.fault("result-damaged")

LAYOUT = Layout("p")


class FakeSite:
    """A bucket and a queue, each of which may refuse."""

    layout = LAYOUT

    def __init__(self, **jobs: bytes) -> None:
        self.held = {LAYOUT.result("e", job): content for job, content in jobs.items()}
        self.sent: list[tuple[str, int]] = []
        self.meanwhile: dict[str, bytes] = {}
        """What is put by another as soon as the one that lies there was copied."""
        self.ends_read = 0
        self.refuses: set[str] = set()
        self.objects = self.queues = self

    def put_result(self, job: str, content: bytes) -> None:
        self.held[LAYOUT.result("e", job)] = content

    def list(self, prefix: str) -> Iterator[StoredObject]:
        for key, content in self.held.items():
            if key.startswith(prefix):
                yield StoredObject(key=key, size=len(content), etag=etag(content))

    def get_end(self, key: str, count: int, known: str) -> bytes | None:
        self.ends_read += 1
        content = self.held.get(key)
        return None if content is None or etag(content) != known else content[-count:]

    def copy(self, key: str, to: str, known: str) -> bool:
        if key in self.held and etag(self.held[key]) == known:
            self.held[to] = self.held[key]
            self.held[key] = self.meanwhile.pop(key, self.held[key])
            return True
        return False

    def delete_if(self, key: str, known: str) -> bool:
        if key in self.held and f'"{etag(self.held[key])}"' == known:
            del self.held[key]
            self._may("the answer of delete")
            return True
        return False

    def send(self, url: str, bodies: Sequence[str], delay: int) -> None:
        self._may("send")
        assert url == "work"
        self.sent += [(JobMessage.read(body).job, delay) for body in bodies]

    def _may(self, what: str) -> None:
        if what in self.refuses:
            raise AwsRefused(service="s", operation=what, code="InternalError", target="", why="")


def etag(content: bytes) -> str:
    return hashlib.md5(content, usedforsecurity=False).hexdigest()


def a_result(text: str = "") -> bytes:
    return zip_of({"header.json": text, "fleet.json": text})


def look(checks: ResultChecks, site: FakeSite) -> Any:
    return checks.taken_back("e", stored_results(cast("Site", site), "e"))


def checks_of(site: FakeSite) -> ResultChecks:
    return ResultChecks(cast("Site", site), "work")


def test_only_the_job_of_a_result_that_is_no_good_runs_again() -> None:
    cut = a_result()[:-1]
    site = FakeSite(good=a_result(), empty=b"", cut=cut)
    checks = checks_of(site)
    assert look(checks, site) == {
        "empty": "it is empty",
        "cut": "it is truncated or no zip (no directory at its end)",
    }
    assert sorted(site.sent) == [("cut", AGAIN_S), ("empty", AGAIN_S)]
    assert site.held.keys() == {
        LAYOUT.result("e", "good"),
        LAYOUT.aside("e", "cut", etag(cut)),
        LAYOUT.aside("e", "empty", etag(b"")),
    }
    assert checks.rounds == 1


def test_a_result_is_looked_at_once_and_again_if_something_else_lies_there() -> None:
    """A healthy run pays one read of an end for each result."""
    site = FakeSite(good=a_result(), other=a_result())
    checks = checks_of(site)
    for _ in range(5):
        assert look(checks, site) == {}
    assert site.ends_read == 2
    site.put_result("good", a_result()[:-1])
    assert look(checks, site).keys() == {"good"}
    assert site.ends_read == 3


def test_the_many_results_of_a_run_that_goes_on_are_looked_at_call_by_call() -> None:
    """All at once they would keep the watch for as long: cancelling, limits and lost instances would have to wait."""
    site = FakeSite(**{f"j{number:03}": a_result() for number in range(MOST_LOOKS)}, last=b"cut")
    checks = checks_of(site)
    assert (look(checks, site), site.ends_read, checks.behind) == ({}, MOST_LOOKS, True)
    assert (look(checks, site).keys(), site.ends_read, checks.behind) == ({"last"}, MOST_LOOKS + 1, False)


def test_a_job_whose_results_are_never_any_good_is_left_to_the_merge() -> None:
    """It stays where the merge finds it, and names it."""
    site = FakeSite(job=b"")
    checks = checks_of(site)
    for _ in range(MOST_AGAIN):
        assert look(checks, site).keys() == {"job"}
        site.put_result("job", b"")
    for _ in range(3):
        assert look(checks, site) == {}
    assert len(site.sent) == checks.rounds == MOST_AGAIN
    assert LAYOUT.result("e", "job") in site.held


@pytest.mark.parametrize("what", ["send", "the answer of delete"])
def test_a_job_without_a_result_gets_its_message_whatever_failed_first(what: str) -> None:
    """Else it would be open for ever, with nobody to run it."""
    site = FakeSite(job=b"")
    checks = checks_of(site)
    site.refuses.add(what)
    with pytest.raises(AwsRefused):
        look(checks, site)
    assert (site.sent, stored_results(cast("Site", site), "e")) == ([], {})
    site.refuses.clear()
    assert look(checks, site) == {}
    assert site.sent == [("job", AGAIN_S)]


def test_what_changes_under_the_look_is_looked_at_the_next_time() -> None:
    site = FakeSite(job=b"short")
    checks, listed = checks_of(site), stored_results(cast("Site", site), "e")
    site.put_result("job", a_result())
    assert checks.taken_back("e", listed) == {}
    assert look(checks, site) == {}
    assert (site.sent, site.ends_read) == ([], 2)


def test_a_good_result_that_comes_as_the_bad_one_is_set_aside_stays() -> None:
    """A job that was delivered twice: the other instance's result is as good as any."""
    site = FakeSite(job=b"cut")
    site.meanwhile[LAYOUT.result("e", "job")] = a_result()
    checks = checks_of(site)
    look(checks, site)
    assert site.held == {LAYOUT.aside("e", "job", etag(b"cut")): b"cut", LAYOUT.result("e", "job"): a_result()}
    assert look(checks, site) == {}
