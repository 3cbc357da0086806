"""Links to Hawk's pages: where it says that they are, and none where it doesn't."""

from __future__ import annotations

import pytest

from fleet.hawk.pages import page, viewer_of
from tests.hawk_server import HANG_UP, Fault, HawkServer


def test_a_deployment_says_where_its_viewer_is_without_a_token(server: HawkServer) -> None:
    viewer = viewer_of(f"{server.address}/")
    assert page(viewer, "evalkit-1") == "https://viewer.hawk.example.org/eval-set/evalkit-1"


@pytest.mark.parametrize(
    "fault",
    [HANG_UP, Fault(503), Fault(200, "<html>a proxy</html>"), Fault(200, "[]"), Fault(200, '{"log_viewer_url": null}')],
    ids=["silence", "5xx", "a page", "a list", "none"],
)
def test_one_that_does_not_has_no_links(fault: Fault, server: HawkServer) -> None:
    server.fail("/auth/config", fault)
    assert page(viewer_of(server.address), "evalkit-1") == ""


def test_an_address_that_is_none_has_no_links() -> None:
    assert viewer_of("http://[") == ""
