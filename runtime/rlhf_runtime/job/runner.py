"""Runs an `RLHFJob` on this machine: prepare, start the roles, train, write everything down.

    prepare ─► claim epoch, find last commit ─► start roles at its versions ─► iterations ─► export ─► summary

The same call resumes: whatever ended an earlier run, this one goes on after the last committed step.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from rlhf_api.enums import AlgorithmName, Schedule
from rlhf_api.types import RLHFJob
from rlhf_runtime.algorithms.grpo import GRPOController
from rlhf_runtime.algorithms.on_policy import OnPolicyController
from rlhf_runtime.algorithms.ppo import PPOController
from rlhf_runtime.backends.base import Backend
from rlhf_runtime.control.controller import Controller
from rlhf_runtime.control.events import Event, Observer
from rlhf_runtime.control.loop import LoopSettings, StepRecord, TrainingLoop
from rlhf_runtime.control.settings import EngineSettings
from rlhf_runtime.errors import InterruptedRunError, RlhfError
from rlhf_runtime.executor import import_object
from rlhf_runtime.job.prepare import Prepared, UnsupportedError, prepare
from rlhf_runtime.job.reporter import Reporter
from rlhf_runtime.job.roles import flow_settings, make_roles
from rlhf_runtime.job.run_folder import RunFolder
from rlhf_runtime.job.summary import Outcome, write_summary
from rlhf_runtime.resilience.checkpoint import Commit, CommitLog
from rlhf_runtime.resilience.incidents import Incident
from rlhf_runtime.resilience.state_store import open_state_store
from rlhf_runtime.telemetry.curve import draw_curve
from rlhf_runtime.telemetry.role_times import RoleTimes

_CONTROLLERS: Mapping[AlgorithmName, type[OnPolicyController]] = {
    AlgorithmName.PPO: PPOController,
    AlgorithmName.GRPO: GRPOController,
}


class _Recorder(Observer):
    """Writes events down, and keeps what the summary needs."""

    def __init__(self, folder: RunFolder, reporter: Reporter) -> None:
        self._folder = folder
        self._reporter = reporter
        self.times = RoleTimes()
        self.incidents: list[Incident] = []

    def event(self, event: Event) -> None:
        if event.kind == "end":
            self.times.add(event)
        self._folder.append("events.jsonl", asdict(event))

    def incident(self, incident: Incident) -> None:
        self.incidents.append(incident)
        self._folder.append("events.jsonl", {"kind": "incident", **asdict(incident)})
        self._reporter.incident(incident)

    def recovered(self, role: str, worker: str, seconds: float) -> None:
        self._reporter.recovered(worker, seconds)


class JobRunner:
    """Runs one job in one folder.

    Args:
        job: What to run.
        folder: Where its results go; resumed if it holds an unfinished run of this job.
        reporter: Told what happens.
        backend: Where the roles run; a name or a backend, by default Ray.
        controller_class: The control flow in place of the algorithm's: a class or `package.module:Class`.
        fresh: Whether to forget an earlier run.
    """

    def __init__(
        self,
        job: RLHFJob,
        folder: Path,
        *,
        reporter: Reporter | None = None,
        backend: Backend | str | None = None,
        controller_class: str | None = None,
        fresh: bool = False,
    ) -> None:
        self._job = job
        self._folder = RunFolder(folder)
        self._reporter = reporter or Reporter()
        self._backend = backend
        self._controller_class = controller_class
        self._fresh = fresh
        self._recorder = _Recorder(self._folder, self._reporter)
        self._lines: list[dict[str, Any]] = []

    def run(self) -> Outcome:
        """Run to the end, or until something ends it; the summary is written in every case.

        Raises:
            RlhfError: The run cannot start or go on; what was committed is whole.
            KeyboardInterrupt: It was stopped; the same call goes on later.
        """
        self._folder.open(fresh=self._fresh)
        try:
            self._folder.check_manifest(self._job.to_manifest())
            finished = self._folder.summary()
            if finished and finished.get("status") == "complete" and finished["steps"] >= self._total:
                return Outcome.from_summary(finished, folder=self._folder.path, ran=False)
            return self._run()
        finally:
            self._folder.close()

    @property
    def _total(self) -> int:
        return self._job.spec.algorithm.total_steps

    def _run(self) -> Outcome:
        controller: Controller | None = None
        status, failure = "failed", "stopped before the first step"
        try:
            self._reporter.phase("Preparing data and models")
            prepared = prepare(self._job, self._reporter)
            roles = make_roles(self._job, prepared, self._reporter)
            epoch, last = self._take_over()
            self._reporter.phase(f"Starting {len(roles)} roles")
            controller = self._make_controller(prepared, epoch, last)
            for role in roles:
                controller.register_role(role)
            controller.engine.wait_ready(lambda group: self._reporter.role_ready(group.role.name, len(group.seats)))
            self._train(controller, epoch, last)
            status, failure = "complete", ""
        except KeyboardInterrupt:
            status, failure = "interrupted", "stopped from outside"
            raise
        except Exception as error:
            failure = str(error)
            raise
        finally:
            outcome = self._wind_up(controller, status, failure)
        return outcome

    def _take_over(self) -> tuple[int, Commit | None]:
        self._folder.state.mkdir(parents=True, exist_ok=True)
        epoch, last = CommitLog(open_state_store(str(self._folder.state))).take_over()
        done = last.iteration + 1 if last else 0
        self._lines = self._folder.read_metrics(up_to_step=done)
        if done:
            self._reporter.resumed(done, self._total)
        return epoch, last

    def _make_controller(self, prepared: Prepared, epoch: int, last: Commit | None) -> Controller:
        algorithm = self._job.spec.algorithm
        custom = algorithm.custom.controller_class if algorithm.custom else None
        chosen = self._controller_class or custom
        cls = import_object(chosen, what="controller class") if chosen else _CONTROLLERS[algorithm.name]
        if not (isinstance(cls, type) and issubclass(cls, Controller)):
            raise UnsupportedError(f'"{chosen}" must be a subclass of `rlhf_runtime.api.Controller`')
        settings = EngineSettings(
            job=self._job.name,
            seed=algorithm.seed,
            epoch=epoch,
            state_location=str(self._folder.state.resolve()),
            restore_versions=last.versions if last else {},
            lag=self._lag,
            spares=1,
            log_folder=str(self._folder.logs.resolve()),
        )
        controller = cls(backend=self._backend, settings=settings, observer=self._recorder)
        parameters = algorithm.custom.parameters if algorithm.custom else {}
        controller.configure(task=prepared.task, flow=flow_settings(self._job), parameters=parameters)
        return controller

    @property
    def _lag(self) -> int:
        return 1 if self._job.spec.algorithm.schedule is Schedule.ONE_STEP_OFF else 0

    def _train(self, controller: Controller, epoch: int, last: Commit | None) -> None:
        spec = self._job.spec
        settings = LoopSettings(
            total_steps=self._total,
            epoch=epoch,
            snapshot_every=spec.state.snapshot_every_steps,
            keep=spec.state.keep,
            evaluate_every=spec.algorithm.evaluation.every_steps,
            lag=self._lag,
        )
        store = open_state_store(str(self._folder.state))
        self._reporter.phase("Training")
        TrainingLoop(controller, store, settings, start=last, on_step=self._record_step).run()
        actor = flow_settings(self._job).actor
        if hasattr(controller.engine.groups[actor].cls, "export"):
            inputs = {"folder": str(self._folder.model.resolve())}
            controller.step(role=actor, method="export", inputs=inputs, outputs=[])
            controller.finish()

    def _record_step(self, record: StepRecord) -> None:
        now = time.time()
        line: dict[str, Any] = {"step": record.step, "time": now, **record.evaluation}
        rates: dict[str, float] = {}
        if record.metrics:
            self._recorder.times.add_step(now - record.seconds, now)
            flow = flow_settings(self._job)
            rates["samples_per_second"] = flow.prompts_per_step * flow.samples_per_prompt / record.seconds
            if "tokens" in record.metrics:
                rates["tokens_per_second"] = record.metrics["tokens"] / record.seconds
            line |= {"seconds": record.seconds, **rates, **record.metrics}
        self._lines.append(line)
        self._folder.append("metrics.jsonl", line)
        self._reporter.step(record, rates)

    def _wind_up(self, controller: Controller | None, status: str, failure: str) -> Outcome:
        try:
            outcome = write_summary(
                self._job,
                self._folder,
                controller=controller,
                times=self._recorder.times,
                lines=self._lines,
                status=status,
                failure=failure,
            )
            if any("reward" in line for line in self._lines):
                draw_curve(self._lines, self._folder.path / "learning_curve.png", title=self._job.name)
        finally:
            if controller is not None:
                controller.close()
        return outcome


__all__ = ["InterruptedRunError", "JobRunner", "Outcome", "RlhfError"]
