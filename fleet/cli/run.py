"""`fleet run`: an eval from the command line, on this machine, on a fleet, or on a Hawk deployment."""

from __future__ import annotations

import json
import os
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from fleet.cli.arguments import ArgumentRefused, pairs
from fleet.cli.main import INTERRUPTED
from fleet.errors import RequestRefused

if TYPE_CHECKING:
    from blocks.ec2_config import Ec2Config
    from fleet.cli.display import Display
    from fleet.evals.report import RunReport
    from fleet.evals.request import EvalRequest
    from fleet.local.cloud import LocalCloud

LOCAL_FLEET = {"max_workers": 2, "concurrency_per_worker": 2, "auto_confirm": True, "idle_seconds": 30}
"""What a local cloud's fleet is unless the options say otherwise: its instances share one machine, and cost nothing."""


CLOUD_NAME = "FLEET_LOCAL_CLOUD"
"""Environment variable that names the local cloud to use where several are up."""


class RequestInvalid(RequestRefused):
    """Options that don't make a request."""

    why: str

    def message(self) -> str:
        """One line."""
        return self.why


@click.command()
@click.argument("tasks", nargs=-1, required=True, metavar="TASK…")
@click.option("--model", "models", multiple=True, required=True, help="Model to evaluate (repeatable).")
@click.option(
    "--backend",
    type=click.Choice(["fleet", "hawk", "local"]),
    default="fleet",
    show_default=True,
    help="Where the eval runs.",
)
@click.option("--hawk", default="default", show_default=True, metavar="BLOCK", help="Hawk Deployment block.")
@click.option("--local-cloud", is_flag=True, help="A fleet on this machine: bring up a local cloud if none is up.")
@click.option("-T", "task_args", multiple=True, metavar="KEY=VALUE", help="Task argument, for every task.")
@click.option("-M", "model_args", multiple=True, metavar="KEY=VALUE", help="Model argument, for every model.")
@click.option(
    "--model-role", "model_roles", multiple=True, metavar="ROLE=MODEL", help="Model for a role such as grader."
)
@click.option("--solver", help="Solver in place of the tasks' own.")
@click.option(
    "--eval-arg", "eval_args", multiple=True, metavar="KEY=VALUE", help="Inspect eval option: epochs, limit, …"
)
@click.option(
    "--generate-arg", "generate_args", multiple=True, metavar="KEY=VALUE", help="Generation option: temperature, …"
)
@click.option(
    "--ec2-arg", "ec2_args", multiple=True, metavar="KEY=VALUE", help="Fleet option: max_workers, spot, ami, …"
)
@click.option("--package", "packages", multiple=True, metavar="REQ", help="Requirement of the job environment.")
@click.option("--python", help="Python version of the job environment.")
@click.option("--source", metavar="DIR", help="Git checkout (or a folder in one) installed into the job environment.")
@click.option(
    "--setting",
    "settings",
    multiple=True,
    metavar="DIR",
    help="Git checkout that tasks read at .settings/NAME (repeatable).",
)
@click.option("--secret", "secrets", multiple=True, metavar="NAME", help="Environment variable that workers need.")
@click.option("--worker-secrets", metavar="BLOCK", help="Worker Secrets block whose values workers get.")
@click.option("--model-cost-config", metavar="FILE", help="Inspect's table of model prices (YAML or JSON).")
@click.option("--samples-per-job", type=click.IntRange(min=1), help="Samples in one job; by default chosen.")
@click.option("--tag", "tags", multiple=True, help="Tag of the eval.")
@click.option("--metadata", multiple=True, metavar="KEY=VALUE", help="Metadata of the eval.")
@click.option(
    "--log-dir", default="logs", show_default=True, metavar="DIR", help="Folder or s3:// address for the logs."
)
@click.option("--account", default="default", show_default=True, help="Fleet Account block.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object at the end.")
def run(as_json: bool, backend: str, local_cloud: bool, **options: Any) -> None:
    """Run Inspect TASKs with one or more models and deliver one log for each.

    A TASK is a registry name (inspect_evals/gpqa) or file.py@task in the source.
    """
    from fleet.cli.display import display_for

    request = request_from(options)
    config = config_from(options["ec2_args"], local_cloud=local_cloud and backend == "fleet")
    with leaving_at_once(), display_for() as display:
        for option in without_effect(backend, options, local_cloud=local_cloud):
            display.warn(f"{option} has no effect with --backend {backend}")
        if backend == "local":
            report = _on_this_machine(request, display)
        elif backend == "hawk":
            report = _on_hawk(request, config, display, options)
        else:
            report = _on_a_fleet(request, config, display, options, local_cloud=local_cloud)
    _show(report, as_json=as_json)
    sys.exit(report.exit_code)


def request_from(options: dict[str, Any]) -> EvalRequest:
    """The request that the options make. RequestRefused says which option is wrong."""
    from pydantic import ValidationError

    from fleet.evals.request import EvalRequest
    from fleet.evals.settings import settings_by_name
    from fleet.wire import explain

    task_args = pairs("-T", options["task_args"])
    model_args = pairs("-M", options["model_args"])
    roles = pairs("--model-role", options["model_roles"])
    log_dir = options["log_dir"]
    document = {
        "tasks": [{"name": name, "args": task_args} for name in options["tasks"]],
        "models": [{"name": name, "args": model_args, "roles": roles} for name in options["models"]],
        "solver": options["solver"],
        "eval_config": pairs("--eval-arg", options["eval_args"]),
        "generate_config": pairs("--generate-arg", options["generate_args"]),
        "packages": list(options["packages"]),
        "python": options["python"],
        "source": str(Path(options["source"]).resolve()) if options["source"] else None,
        "settings": [str(path) for path in settings_by_name(options["settings"]).values()],
        "secrets": list(options["secrets"]),
        "model_cost_config": options["model_cost_config"] and str(Path(options["model_cost_config"]).resolve()),
        "samples_per_job": options["samples_per_job"] or "auto",
        "tags": list(options["tags"]),
        "metadata": pairs("--metadata", options["metadata"]),
        "log_dir": log_dir if "://" in log_dir else str(Path(log_dir).expanduser().resolve()),
    }
    try:
        return EvalRequest.model_validate(document)
    except ValidationError as error:
        raise RequestInvalid(why=explain(error)) from error


def config_from(ec2_args: tuple[str, ...], *, local_cloud: bool) -> Ec2Config:
    """The fleet's options. ArgumentRefused names the option that is wrong."""
    from pydantic import ValidationError

    from blocks.ec2_config import Ec2Config
    from fleet.wire import explain

    given = pairs("--ec2-arg", ec2_args)
    try:
        return Ec2Config.model_validate({**(LOCAL_FLEET if local_cloud else {}), **given})
    except ValidationError as error:
        raise ArgumentRefused(option="--ec2-arg", text=" ".join(ec2_args), why=explain(error)) from error


def without_effect(backend: str, options: dict[str, Any], *, local_cloud: bool) -> list[str]:
    """The options given that this backend has no use for. What Hawk can't keep of the fleet's is refused, option by option."""
    given = {
        "--ec2-arg": options["ec2_args"],
        "--local-cloud": local_cloud,
        "--worker-secrets": options["worker_secrets"],
        "--hawk": options["hawk"] != "default",
    }
    useless = {"fleet": ["--hawk"], "hawk": ["--local-cloud"], "local": list(given)}
    return [option for option in useless[backend] if given[option]]


def _on_this_machine(request: EvalRequest, display: Display) -> RunReport:
    from fleet.backends.local import LocalBackend

    return LocalBackend(display).run(request)


def _on_hawk(request: EvalRequest, config: Ec2Config, display: Display, options: dict[str, Any]) -> RunReport:
    from fleet.backends.hawk import HawkBackend

    quiet_prefect()
    return HawkBackend(config, display, deployment=options["hawk"], worker_secrets=options["worker_secrets"]).run(
        request
    )


def _on_a_fleet(
    request: EvalRequest, config: Ec2Config, display: Display, options: dict[str, Any], *, local_cloud: bool
) -> RunReport:
    from fleet.backends.fleet import FleetBackend, as_configured
    from fleet.cli.display import NeedsApproval

    if not (config.auto_confirm or config.estimate or display.can_ask):
        raise NeedsApproval()
    quiet_prefect()
    backend = FleetBackend(
        config,
        display,
        services=(lambda: a_local_cloud(display)) if local_cloud else as_configured,
        account=options["account"],
        worker_secrets=options["worker_secrets"],
    )
    return backend.run(request)


def use(cloud: LocalCloud) -> None:
    """Point this process at a local cloud, and at nothing else."""
    cloud.apply()
    quiet_prefect()


def use_prefect_of(cloud: LocalCloud) -> None:
    """Let Prefect be imported for a local cloud that may not be up yet."""
    cloud.apply_to_prefect()
    quiet_prefect()


def quiet_prefect() -> None:
    """Prefect's own lines stay off the terminal: the display says what a person needs, and the UI has every line."""
    os.environ.setdefault("PREFECT_LOGGING_HANDLERS_CONSOLE_LEVEL", "CRITICAL")


@contextmanager
def leaving_at_once() -> Iterator[None]:
    """A block that ends the process when it was interrupted and the Prefect server is away: as it ends by itself, Prefect would
    try for more than a minute to send what it still has."""
    try:
        yield
    except KeyboardInterrupt:
        farewell = sys.modules.get("fleet.backends.farewell")
        if farewell is not None and farewell.silent.is_set():
            click.echo("interrupted", err=True)
            sys.stdout.flush()
            os._exit(INTERRUPTED)
        raise


@contextmanager
def a_local_cloud(display: Display) -> Iterator[Callable[[], None]]:
    """The local cloud that is up, which stays up; or one of our own, which ends with the run, however the run ends."""
    from fleet.local import cloud

    up = cloud.find(os.environ.get(CLOUD_NAME, "default"))
    if up is not None:
        display.stage(f"Using the local cloud that is up: {up.prefect_ui}")
        use_prefect_of(up)
        yield lambda: use(up)
        return
    name = f"run-{os.getpid()}"
    over = threading.Event()
    known: Future[LocalCloud] = Future()
    answering: Future[LocalCloud] = Future()
    with ThreadPoolExecutor(1) as beside:
        starting = beside.submit(
            cloud.up,
            name,
            controllers=False,
            owner_pid=os.getpid(),
            wanted=lambda: not over.is_set(),
            coming=known.set_result,
            answering=answering.set_result,
        )

        pointed = threading.Event()

        def point_there() -> None:
            wait((answering, starting), return_when=FIRST_COMPLETED)
            own = starting.result() if starting.done() else answering.result()
            display.stage(f"Local cloud is up: {own.prefect_ui}")
            use(own)
            pointed.set()

        def tell(ended: Future[LocalCloud]) -> None:
            # At once: it may take Prefect's client minutes to give a server up.
            failed = ended.exception()
            if failed and pointed.is_set() and not over.is_set():
                display.warn(str(failed))

        try:
            wait((known, starting), return_when=FIRST_COMPLETED)
            if known.done():  # else it failed, as `point_there` will say
                use_prefect_of(known.result())
            starting.add_done_callback(tell)
            yield point_there
        except Exception as error:
            # A cloud that went down under the run is why, whatever the run says of it.
            failed = starting.exception() if pointed.is_set() and starting.done() else None
            if failed is not None:
                raise failed from error
            raise
        finally:
            over.set()
            if starting.exception() is None:
                display.stage("Taking the local cloud down")
            for left in cloud.down(name):
                display.warn(left)


def _show(report: RunReport, *, as_json: bool) -> None:
    if as_json:
        click.echo(json.dumps(report.model_dump(mode="json"), indent=2))
        return
    for one in report.evals:
        click.echo(f"{one.task} · {one.model}: {one.status}, {one.samples_done} of {one.samples} samples")
        for metric in one.metrics:
            value = f"{metric.value:.4g}" if isinstance(metric.value, float) else metric.value
            click.echo(f"  {metric.scorer} {metric.name}: {value}")
        if one.why:
            click.echo(f"  {one.why}")
        if one.log:
            click.echo(f"  log: {one.log}")
        elif one.stored:
            click.echo(f"  {one.keeper}: {one.stored}")
    if report.why:
        click.echo(f"{report.outcome}: {report.why}", err=report.outcome != "estimated")
    for what in report.left:
        click.echo(f"left behind: {what}", err=True)
