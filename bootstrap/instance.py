"""This instance at work on one order: what the steps of the flow `fleet_worker` are made of.

It holds what the steps share, secrets among them, and is handed from task to task as it is. It is a plain class on purpose:
Prefect looks into dataclasses, models and containers that tasks are given, and must find nothing to look into here.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

import anyio

from bootstrap import git_access, gpu, job_process, registry, worker_setup, worker_user
from bootstrap.clockwork import Clockwork, real_clockwork
from bootstrap.host import HostFailed, prepare_docker_host
from bootstrap.install import fetch_artifact, resolved_locations
from bootstrap.job_variables import JobVariables
from bootstrap.reports import Reports
from bootstrap.secrets import Secrets, SecretsFetch, SettingFetch
from bootstrap.slots import Slots, first_slots
from fleet.aws.failures import AwsRefused
from fleet.aws.objects import Objects
from fleet.aws.parameters import Parameters
from fleet.aws.queues import Depth, Queues
from fleet.aws.session import Aws
from fleet.aws.shared_parameters import shared_text
from fleet.cache import cache_folder
from fleet.evals.documents import WorkerOrder
from fleet.evals.layout import Layout
from fleet.evals.variable_names import LOG_LEVEL

if TYPE_CHECKING:
    from bootstrap.environment import JobEnvironment
    from bootstrap.setting_values import PlacedValues

LAST_WORD_SECONDS = 10.0
"""For the last event and the last log lines, when all else has been cancelled."""

LOGIN = "docker"
"""Folder of this worker's Docker configuration."""
RUNNERS = "runners"
"""Folder of the runners' output."""

WHY = {
    "idle": "no job came for a while",
    "queue gone": "the run has no more jobs",
    "stopped": "told to stop",
}
"""Why work ended by itself or by a signal, for a person."""

SHARED_CACHE = Path("/var/cache/inspect-fleet")
"""Where job environments are built that another user than root runs: root's own cache is closed to them."""


class Instance:
    """One instance, one order. Made by `bootstrap.duty`."""

    def __init__(
        self,
        order: WorkerOrder,
        *,
        instance_id: str,
        worker: str,
        say: Callable[[str], None],
        clockwork: Clockwork,
        folder: Path,
        name: str = "",
        aws: Aws | None = None,
    ) -> None:
        self._aws = aws = aws or Aws(order.region)
        self.order = order
        self.id = instance_id
        self.name = name
        """Its flow run's, for people."""
        self.say = say
        self.clockwork = clockwork
        self.folder = folder
        self.layout = Layout(order.prefix)
        self.objects = Objects(aws, order.bucket)
        self.queues = Queues(aws)
        self.secrets = Secrets()
        self.variables = JobVariables(self.secrets)
        if order.log_level:
            self.variables.add({LOG_LEVEL: order.log_level})
        self.doing = "boot"
        """The step that is on, for a person."""
        self.reports = Reports(
            self.queues, order.events_queue, worker=worker, instance=instance_id, clockwork=clockwork, say=say
        )
        self.ended = "failed"
        """Why it ended, for the event and the run's message."""
        self.reason = "failed"
        """The same in a word: idle, queue gone, stopped, interrupted, host, failed."""
        self.failed = False
        """Whether a step failed in a way that a person can do something about; `ended` says it."""
        self._parameters = Parameters(aws)
        self._own_parameter = f"{order.secrets_parameter}/{instance_id}"
        self._fetch = SecretsFetch(self._parameters, self._own_parameter, clock=clockwork.now, say=say)
        self.duties = ExitStack()
        """What is to be undone when the duty ends."""
        self._placed: PlacedValues | None = None

    async def fetch_secrets(self) -> None:
        """One try to get the run's secrets into this process's memory; the errors of `SecretsFetch`."""
        await self.clockwork.in_thread(self._fetch, self.secrets)
        self.say(f"secrets fetched from {self._fetch.name}: {', '.join(self.secrets.names())}")
        await self.reports.send("secrets_fetched", parameter=self._fetch.name)

    async def fetch_setting_values(self, environment: JobEnvironment, setting: str) -> None:
        """One try to put a setting's values beside it, the jobs' user's own; the errors of `SettingFetch`."""
        from bootstrap.setting_values import PlacedValues

        fetch = SettingFetch(self._parameters, self._own_parameter, setting)
        text = await self.clockwork.in_thread(fetch, self.secrets)
        if self._placed is None:
            self._placed = self.duties.enter_context(PlacedValues(environment, self.jobs_user))
        await self.clockwork.in_thread(self._placed.put, setting, text)
        self.say(f"values of the setting {setting} fetched from {fetch.name}")
        await self.reports.send("secrets_fetched", parameter=fetch.name)

    async def prepare_host(self) -> None:
        """Make and find this host fit for containers; HostUnfit says what to do."""
        await self._tell(prepare_docker_host())

    async def log_in(self) -> None:
        """Log in to the registry of images, for the jobs. RegistryLoginMissing, RegistryLoginIncomplete, HostUnfit."""
        access = self.order.registry
        folder = registry.own_configuration(self.folder / LOGIN)
        self.variables.add({registry.DOCKER_CONFIG: str(folder)})

        def work() -> str:
            who = registry.credentials(access, self.secrets.environment(), lambda name: shared_text(self._aws, name))
            if who is None:
                return f"no login for {access.name} is configured, and the account asks for none: images are pulled without"
            return registry.log_in(access.registry, who, self._own_docker())

        self.say(self.secrets.hide(await self.clockwork.in_thread(work)))

    async def check_gpu(self) -> None:
        """Where this machine has a GPU, find that containers see it. GpuUnusable."""
        await self._tell(gpu.check_gpu(gpu.pci_devices(), self._own_docker()))

    async def prepare_user(self) -> None:
        """Give the user that runs jobs what they need here. WorkerUserUnfit."""
        user = self.order.worker_user
        own_bin = self.folder / "bin"
        self.variables.put_in_front(own_bin)
        self.duties.callback(worker_user.withdraw)
        await self._tell(
            worker_user.prepare(
                user,
                self.runner_environment(),
                docker=self.folder / LOGIN if self.order.needs_docker else None,
                bin_folder=own_bin,
            )
        )

    async def install_code(self) -> JobEnvironment:
        """The order's job environment, built here or found in the cache."""
        from bootstrap.environment import build
        from bootstrap.uv import uv_sees

        token = git_access.TOKEN if git_access.TOKEN in self.secrets.names() else ""
        self.variables.add(
            git_access.git_variables(os.environ, git_access.write_known_hosts(self.folder), token=bool(token))
        )
        self.say(f"git knows GitHub's host keys{f', and asks for {token} at https://github.com' if token else ''}")
        seen = {
            name: value
            for name, value in self.runner_environment().items()
            if name.startswith("GIT_") or (token and name == token)
        }

        def artifact(sha256: str) -> Path:
            return fetch_artifact(self.objects, self.layout, sha256, self.folder)

        def work() -> JobEnvironment:
            with uv_sees(seen):
                return build(self.order.environment, cache=self._cache(), artifact=artifact)

        environment = await self.clockwork.in_thread(work)
        await self._tell(resolved_locations(environment))
        return environment

    async def set_up(self, environment: JobEnvironment) -> None:
        """Run the person's setup script, and take over the variables that it leaves. HostUnfit."""
        if self.order.worker_setup is None:
            return
        script = await self.clockwork.in_thread(
            fetch_artifact, self.objects, self.layout, self.order.worker_setup, self.folder
        )
        left = worker_setup.room_for_variables(self.folder)
        # root's own home and caches: what root leaves in another user's is closed to them.
        jobs = job_process.variables(environment, self.variables.environment())
        await worker_setup.run_setup(
            worker_setup.make_ready(script),
            worker_setup.setup_environment(jobs, environment.python, left),
            self.folder,
            self.say,
            hide=self.secrets.hide,
        )
        taken = await self.clockwork.in_thread(worker_setup.take_over, left, jobs)
        self.variables.take(taken)
        names = ", ".join(sorted({*taken.variables, *taken.removed}))
        self.say(f"worker setup finished{f'; it sets {names}' if names else ''}")

    async def hand_over(self, environment: JobEnvironment) -> None:
        """Make the job environment the jobs' user's own, and find that they can start it. WorkerUserUnfit."""
        user = self.order.worker_user
        count = await self.clockwork.in_thread(worker_user.hand_over, environment.folder, user)
        self.say(f"{count:,} files and folders of {environment.folder} belong to {user}")
        await self.clockwork.in_thread(
            worker_user.check_reach, user, environment.python, self._seen_by_jobs(environment)
        )

    async def run_jobs(self, environment: JobEnvironment, stop: anyio.Event) -> None:
        """Run jobs in warm runners until none come, the queue is gone, or `stop` is set."""
        from bootstrap.crew import Crew
        from bootstrap.delivery import Deliveries
        from bootstrap.guard import GIVE_UP_SECONDS
        from bootstrap.manifests import Manifests
        from bootstrap.readings import oom_kills
        from bootstrap.runners import RunnerPool
        from bootstrap.watches import Watches
        from bootstrap.work import Work, told

        manifests = Manifests(self.objects, self.layout, self.clockwork)
        watches = Watches(
            self.order,
            [self.folder, environment.folder],
            docker=self._own_docker(),
            clockwork=real_clockwork(),
            say=self.say,
        )
        slots = await self.first_slots()
        self.say(f"taking jobs: {slots.now} at a time to begin with, at most {slots.most}")
        pool = RunnerPool(
            environment,
            self.folder / RUNNERS,
            self.runner_environment(),
            user=self.jobs_user,
            instance=self.id,
            rates=await self._rates(),
            preload=[await manifests.of(eval_id) for eval_id in self.order.eval_ids],
            refused=lambda seconds: work.refused(seconds),
        )
        try:
            async with pool:
                crew = Crew(pool)
                work = Work(
                    deliveries=Deliveries(
                        instance=self.id,
                        queue=self.order.work_queue,
                        lease_seconds=self.order.lease_seconds,
                        folder=self.folder / "jobs",
                        layout=self.layout,
                        objects=self.objects,
                        queues=self.queues,
                        manifests=manifests,
                        reports=self.reports,
                        secrets=self.secrets,
                        clockwork=self.clockwork,
                        run_job=crew.run,
                        say=self.say,
                        unfit=watches.unfit,
                        oom_kills=oom_kills,
                        worker=self.name,
                    ),
                    receiver=self.queues,
                    slots=slots,
                    idle_seconds=self.order.idle_seconds,
                    stop=stop,
                    say=self.say,
                    beside=watches.beside(),
                    fit_runners=crew.fit,
                )
                reason = await work.run()
        finally:
            with anyio.move_on_after(LAST_WORD_SECONDS, shield=True):
                await self.clockwork.in_thread(self._keep_runner_logs)
        done = told(work.outcomes)
        if reason == "host":
            raise HostFailed(why=work.why, minutes=GIVE_UP_SECONDS / 60, done=done, advice=watches.advice)
        back = f", {len(work.given_back)} in flight given back" if work.given_back else ""
        self.ended = f"{work.why or WHY[reason]}; {done}{back}"
        self.reason = reason
        self.say(self.ended)

    @property
    def jobs_user(self) -> str | None:
        """Whose processes jobs are; None: this process's own user."""
        user = self.order.worker_user
        return user if worker_user.switches(user, worker_user.own_name()) else None

    def runner_environment(self, environ: Mapping[str, str] = os.environ) -> dict[str, str]:
        """What runners see: this machine's variables without ours, the secrets, and what the steps have added."""
        return self.variables.environment(environ, of_another_user=self.jobs_user is not None)

    def _seen_by_jobs(self, environment: JobEnvironment) -> dict[str, str]:
        """What a job's process sees in the end, its Python in front."""
        return job_process.variables(environment, self.runner_environment(), self.jobs_user)

    def _own_docker(self) -> dict[str, str]:
        """What Docker's clients see that this process starts."""
        return {**os.environ, registry.DOCKER_CONFIG: str(self.folder / LOGIN)}

    def _cache(self) -> Path:
        """Where job environments are built."""
        if self.jobs_user is None or os.environ.get("FLEET_CACHE_DIR"):
            return cache_folder()
        SHARED_CACHE.mkdir(mode=0o755, parents=True, exist_ok=True)
        return SHARED_CACHE

    async def _tell(self, steps: Iterator[str]) -> None:
        """Take steps in a thread, each told when done."""
        while (said := await self.clockwork.in_thread(next, steps, None)) is not None:
            self.say(self.secrets.hide(said))

    async def _rates(self) -> Path | None:
        """The price table of the run, so that runners price as the controller does; None: they don't price."""
        if self.order.rates is None:
            return None
        path = await self.clockwork.in_thread(fetch_artifact, self.objects, self.layout, self.order.rates, self.folder)
        path.chmod(0o644)  # prices are no secret, and runners may be another user's
        return path

    def _keep_runner_logs(self) -> None:
        """Put what the runners wrote beside the boot log; lost only for an instance that dies."""
        for log in sorted((self.folder / RUNNERS).glob("*.log")):
            try:
                if text := self.secrets.hide(log.read_text(errors="replace")):
                    self.objects.put(self.layout.instance_log(self.order.run, self.id, log.stem), text.encode())
            except (AwsRefused, OSError) as error:  # the disk may be what the host ends for
                self.say(f"{log.name} not kept: {error}")

    async def first_slots(self) -> Slots:
        """How many jobs at a time to begin with."""
        jobs: Depth | None = None
        try:
            jobs = await self.clockwork.in_thread(self.queues.depth, self.order.work_queue)
        except AwsRefused as refusal:  # only a start value is lost; the work itself finds out what is wrong
            self.say(f"how many jobs wait is not known: {refusal}")
        cpus = len(os.sched_getaffinity(0))
        return first_slots(
            self.order.concurrency,
            cpus=cpus,
            jobs=jobs,
            fleet_size=self.order.fleet_size,
            settled=self.order.first_slots,
        )
