"""The one code path above both clients, against a scripted server: what is asked, what comes back, how each failure is said."""

from __future__ import annotations

import json
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from operator import attrgetter
from pathlib import Path

import pytest

from fleet.errors import FleetError
from fleet.hawk.api import (
    HawkConflict,
    HawkError,
    HawkFailed,
    HawkForbidden,
    HawkInvalid,
    HawkRefusedLogin,
    HawkUnreachable,
)
from fleet.hawk.calls import HawkCalls
from fleet.hawk.connect import Hawk, HawkAddressRefused, calls_for, connect, without
from fleet.hawk.tokens import Tokens
from tests.hawk_server import (
    HANG_UP,
    TOKEN,
    Fault,
    HawkServer,
    Launch,
    State,
    a_token,
    detail,
    eval_log,
    problem,
)

ID = "my-eval-0123456789"
SECRET = "sk-very-secret-value"


@dataclass(frozen=True)
class Row:
    """A failure of a launch, and what a person reads."""

    name: str
    fault: Fault
    kind: type[HawkError]
    said: str
    times: int = 1


A_FIELD = {"type": "missing", "loc": ["body", "eval_set_config", "tasks"], "msg": "Field required", "input": SECRET}
ROWS = [
    Row(
        "401 twice",
        detail(401, "Your access token has expired"),
        HawkRefusedLogin,
        "401: Your access token has expired. Log in again (`hawk login`)",
        2,
    ),
    Row("403", detail(403, "You may not use openai/gpt-9"), HawkForbidden, "403: You may not use openai/gpt-9"),
    Row(
        "409",
        problem(409, "Job already exists", "Stop it first."),
        HawkConflict,
        "409: Job already exists: Stop it first",
    ),
    Row(
        "422 by problem+json",
        problem(422, "Missing secrets", "HF_TOKEN"),
        HawkInvalid,
        "422: Missing secrets: HF_TOKEN",
    ),
    Row("422 by FastAPI", detail(422, [A_FIELD]), HawkInvalid, "422: eval_set_config.tasks: Field required"),
    Row(
        "429",
        problem(429, "Outstanding job limit reached", "You have 9."),
        HawkInvalid,
        "429: Outstanding job limit reached: You have 9",
    ),
    Row(
        "a secret in an error",
        problem(422, "Bad secret", f"{SECRET!r} is malformed"),
        HawkInvalid,
        "422: Bad secret: '<HF_TOKEN>' is malformed",
    ),
    Row(
        "500",
        problem(500, "Server error", "An internal error occurred"),
        HawkFailed,
        "500: Server error: An internal error occurred",
    ),
    Row("a proxy's page", Fault(502, "<html><h1>Bad gateway</h1></html>", "text/html"), HawkFailed, "502: a web page"),
    Row("no body", Fault(503), HawkFailed, ": 503"),
    Row("no answer", HANG_UP, HawkUnreachable, "asked for a launch of my-eval"),
    Row(
        "a page in place of an answer",
        Fault(200, "<html>sign in</html>", "text/html"),
        HawkFailed,
        "is this the address of its API",
    ),
    Row("another answer", Fault(200, '{"id": 1}'), HawkFailed, "is this the address of its API"),
]


@pytest.mark.parametrize("row", ROWS, ids=attrgetter("name"))
def test_a_failure_is_of_its_kind_and_says_itself_in_one_line(server: HawkServer, hawk: Hawk, row: Row) -> None:
    server.fail("POST /eval_sets/", row.fault, row.times)
    with pytest.raises(row.kind) as raised:
        hawk.submit(ID, {"tasks": []}, secrets={"HF_TOKEN": SECRET})
    said = str(raised.value)
    assert type(raised.value) is row.kind
    assert row.said in said
    assert said.startswith(f"Hawk at {server.address}, asked for ")
    assert "\n" not in said
    assert SECRET not in said
    assert SECRET not in "".join(traceback.format_exception(raised.value)), "which Prefect logs"
    assert server.posted == []


def test_an_answer_that_is_not_hawk_s_is_quoted_nowhere(server: HawkServer, hawk: Hawk) -> None:
    server.has(ID, ["running"])
    server.fail("job-status", Fault(200, json.dumps({"status": {"of": SECRET}})))
    with pytest.raises(HawkFailed) as raised:
        hawk.job_status(ID)
    assert SECRET not in "".join(traceback.format_exception(raised.value))


def test_a_token_that_hawk_does_not_take_any_more_is_asked_for_again_once(
    server: HawkServer, client: Callable[[str], HawkCalls]
) -> None:
    server.has(ID, ["running"])
    hawk = Hawk(client(server.address), iter(["expired", TOKEN]).__next__)
    for _ in range(2):
        status = hawk.job_status(ID)
        assert status is not None
        assert status.status == "running"
    assert server.asked("job-status") == 3


def test_one_refusal_does_not_end_a_run_whose_token_is_always_the_same(server: HawkServer, hawk: Hawk) -> None:
    server.has(ID, ["running"])
    server.fail("job-status", detail(401, "try again"))
    assert hawk.job_status(ID) is not None


def test_a_launch_pins_its_id_and_a_resume_sends_no_configuration(server: HawkServer, hawk: Hawk) -> None:
    server.launches = [Launch(["complete"]), Launch(["running"])]
    server.warnings = ["Your rate limit is nearly used up"]
    answer = hawk.submit(ID, {"tasks": [], "models": []}, secrets={"A_KEY": "value"})
    assert (answer.eval_set_id, answer.warnings) == (ID, server.warnings)
    hawk.resume(ID, secrets={})
    first, second = server.posted
    assert (first["eval_set_config"], first["eval_set_id"]) == ({"tasks": [], "models": [], "eval_set_id": ID}, None)
    assert first["secrets"] == {"A_KEY": "value"}
    assert (second["eval_set_config"], second["eval_set_id"]) == (None, ID)


def test_a_runner_gets_what_it_renews_its_token_by(server: HawkServer, client: Callable[[str], HawkCalls]) -> None:
    token = a_token(exp=1_800_000_000)
    server.tokens.add(token)
    server.launches = [Launch()]
    answer = Hawk(client(server.address), lambda: token, lambda: "by-this").submit(ID, {}, secrets={})
    assert (server.posted[0]["refresh_token"], answer.warnings) == ("by-this", [])


def test_a_runner_that_cannot_renew_its_token_is_warned_of(
    server: HawkServer, client: Callable[[str], HawkCalls]
) -> None:
    token = a_token(exp=1_800_000_000)
    server.tokens.add(token)
    server.launches, server.warnings = [Launch()], ["Hawk's own"]
    answer = Hawk(client(server.address), lambda: token).submit(ID, {}, secrets={})
    assert server.posted[0]["refresh_token"] is None
    assert answer.warnings[0] == "Hawk's own"
    assert "which ends at 2027-01-15 08:00 UTC" in answer.warnings[1]


def test_a_status_reads_what_hawk_says_of_it(server: HawkServer, hawk: Hawk) -> None:
    assert hawk.job_status(ID) is None
    server.has(ID, [State("stuck", trouble="OOMKilled", done=3, total=8, asking=2), State("pending", waits="no quota")])
    stuck = hawk.job_status(ID)
    progress = hawk.eval_set_status(ID)
    waiting = hawk.job_status(ID)
    assert stuck is not None
    assert waiting is not None
    assert (stuck.status, stuck.details.trouble_reason, stuck.pending_interactions) == ("stuck", "OOMKilled", 2)
    assert (progress.tasks[0].progress.done, progress.tasks[0].progress.total) == (3, 8)
    assert waiting.admission is not None
    assert (waiting.admission.waits, waiting.admission.message) == (True, "no quota")


def test_logs_come_in_the_order_of_their_names_and_their_store_gets_no_token(
    server: HawkServer, hawk: Hawk, tmp_path: Path
) -> None:
    logs = {f"2026_{name}.eval": eval_log(name, "m/m") for name in ("b", "a")}
    server.has(ID, ["complete"], {**logs, "eval-set.json": b"{}"})
    names = hawk.log_names(ID)
    paths = hawk.download(names, tmp_path)
    assert names == [f"{ID}/2026_a.eval", f"{ID}/2026_b.eval"]
    assert {path.name: path.read_bytes() for path in paths} == logs
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(logs)


def test_addresses_of_logs_are_asked_for_when_they_are_needed_since_they_end(
    server: HawkServer, hawk: Hawk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fleet.hawk.connect.URLS_AHEAD", 2)
    server.has(ID, ["complete"], {f"{name}.eval": name.encode() for name in "abcde"})
    paths = hawk.download(hawk.log_names(ID), tmp_path)
    assert [path.read_text() for path in paths] == list("abcde")
    order = "".join(
        {"POST": "?", "GET ": "."}[call[:4]] for call in server.calls if "download" in call or "store" in call
    )
    assert order == "?..?..?."


@pytest.mark.fault("hawk-no-answer")
def test_logs_that_are_there_already_are_not_fetched_again(server: HawkServer, hawk: Hawk, tmp_path: Path) -> None:
    server.has(ID, ["complete"], {f"{name}.eval": name.encode() for name in "abc"})
    names = hawk.log_names(ID)
    server.fail("/store/my-eval-0123456789/b.eval", Fault(403, "Request has expired"))
    with pytest.raises(HawkFailed, match="its store says 403"):
        hawk.download(names, tmp_path)
    paths = hawk.download(names, tmp_path)
    assert [path.read_text() for path in paths] == list("abc")
    assert server.asked("/store/") == 4, "a, b in vain, b, c"
    calls = len(server.calls)
    assert hawk.download(names, tmp_path) == paths
    assert len(server.calls) == calls


@pytest.mark.parametrize(
    ("fault", "kind"),
    [
        (Fault(403, "expired"), HawkFailed),
        (Fault(404), HawkFailed),
        (Fault(503), HawkFailed),
        (HANG_UP, HawkUnreachable),
        (Fault(200, "half of", cut=9), HawkUnreachable),
    ],
)
def test_a_log_that_does_not_come_leaves_nothing_and_its_address_is_not_said(
    server: HawkServer, hawk: Hawk, tmp_path: Path, fault: Fault, kind: type[HawkError]
) -> None:
    server.has(ID, ["complete"], {"a.eval": b"log"})
    server.fail("/store/", fault)
    with pytest.raises(kind, match=f"the log {ID}/a.eval") as raised:
        hawk.download([f"{ID}/a.eval"], tmp_path)
    assert "signature" not in str(raised.value)
    assert list(tmp_path.iterdir()) == []


def test_an_eval_set_without_a_folder_has_no_logs(server: HawkServer, hawk: Hawk) -> None:
    server.fail("GET /view/logs/logs", Fault(404))
    assert hawk.log_names(ID) == []


def test_stopping_makes_errors_of_samples_under_way(server: HawkServer, hawk: Hawk) -> None:
    """Scored as they are, they would be success, and the same request could not run them again."""
    server.has(ID, ["running"])
    hawk.stop(ID)
    assert server.stops == [{"action": "error"}]


def test_what_is_gone_already_is_deleted(server: HawkServer, hawk: Hawk) -> None:
    hawk.delete(ID)
    server.has(ID, ["running"])
    hawk.delete(ID)
    assert server.sets[ID].now.status == "deleted"


def test_the_last_words_come_oldest_first(server: HawkServer, hawk: Hawk) -> None:
    server.has(ID, ["failed"])
    server.runner_log = ["one", "two", "three"]
    assert hawk.last_words(ID, 2) == ["two", "three"]


@pytest.mark.parametrize(
    "address",
    [
        "",
        "api.hawk.example.org",
        "ftp://hawk.example.org",
        "https://",
        "https://me:pw@hawk.example.org",
        "https://:pw@hawk.example.org",
        "https://@hawk.example.org",
        "http://h:x",
        "https://h/?a=1",
    ],
)
def test_what_is_no_address_is_refused_before_anything_is_asked(address: str) -> None:
    with pytest.raises(HawkAddressRefused, match="HAWK_API_URL") as raised:
        connect(address, Tokens(address, TOKEN))
    assert "pw" not in str(raised.value).partition(" is no ")[0].partition("@")[0]


def test_a_slash_at_the_end_of_the_address_does_not_matter(server: HawkServer) -> None:
    server.has(ID, ["running"])
    assert connect(f"{server.address}/", Tokens(server.address, TOKEN)).job_status(ID) is not None


def test_a_key_of_several_lines_is_hidden_where_it_is_said_line_by_line() -> None:
    key = "-----BEGIN KEY-----\nc2VjcmV0IG9mIG1hbnkgbGluZXM\nb25l\n"
    assert without(f"read: {key}", {"KEY": key}) == "read: <KEY>"
    assert without("read c2VjcmV0IG9mIG1hbnkgbGluZXM and", {"KEY": key}) == "read <KEY> and"
    assert without("it is yes", {"SHORT": "yes"}) == "it is yes"


@pytest.mark.hawk
def test_hawk_s_own_client_serves_where_it_is_installed(server: HawkServer) -> None:
    from fleet.hawk.package import PackageCalls

    assert isinstance(calls_for(server.address), PackageCalls)


def test_errors_are_exits_of_their_kind() -> None:
    facts = {"address": "a", "asked": "b", "why": "c"}
    kinds: list[type[FleetError]] = [HawkInvalid, HawkConflict, HawkUnreachable]
    assert [kind(**facts).exit_code for kind in kinds] == [2, 1, 1]
