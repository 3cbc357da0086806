"""The control path of the emulator, `/_fleet/…`: JSON in, JSON out, for tests and for `fleet local status`."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

from fleet.local.calls import Environ, StartResponse
from fleet.local.faults import PATH, Fault, FaultBook
from fleet.local.hypervisor import Hypervisor, NotSpot
from fleet.local.rooms import ROOMS


class Control:
    """Answers the control path.

    `GET health` · `GET faults` (with hits, and calls by operation) · `POST faults` a `Fault` · `DELETE faults` ·
    `POST room` fields of `Rooms.set`, cleared with the faults · `POST interrupt` {instance, notice} ·
    `POST rebalance` {instance} · `POST crash` {instance} · `POST timing` fields of `Timing`. What can't be done is 400, or
    404, with `{"error": why}`.
    """

    def __init__(self, faults: FaultBook, hypervisor: Hypervisor) -> None:
        self._faults = faults
        self._hypervisor = hypervisor

    def __call__(self, environ: Environ, start: StartResponse) -> Iterable[bytes]:
        """As a WSGI application."""
        body = environ["wsgi.input"].read(int(environ.get("CONTENT_LENGTH") or 0))
        operation = f"{environ['REQUEST_METHOD']} {environ['PATH_INFO'].removeprefix(PATH).strip('/')}"
        try:
            status, answer = "200 OK", self._act(operation, json.loads(body) if body else {})
        except KeyError as error:
            status, answer = "404 Not Found", {"error": f"no {error.args[0]}"}
        except (ValueError, TypeError, NotSpot) as error:
            status, answer = "400 Bad Request", {"error": str(error)}
        data = json.dumps(answer).encode()
        start(status, [("Content-Type", "application/json"), ("Content-Length", str(len(data)))])
        return [data]

    def _act(self, operation: str, given: Any) -> dict[str, Any]:
        hypervisor = self._hypervisor
        match operation:
            case "GET health":
                return {"ready": True, "instances": hypervisor.running()}
            case "GET faults":
                return self._faults.report()
            case "POST faults":
                self._faults.add(Fault.read(given))
            case "DELETE faults":
                self._faults.clear()
                ROOMS.clear()
            case "POST room":
                ROOMS.set(**given)
            case "POST interrupt":
                return {"ends": hypervisor.interrupt(given["instance"], given.get("notice")).isoformat()}
            case "POST rebalance":
                hypervisor.rebalance(given["instance"])
            case "POST crash":
                hypervisor.crash(given["instance"])
            case "POST timing":
                hypervisor.timing = hypervisor.timing.changed(given)
            case _:
                raise KeyError(operation)
        return {}
