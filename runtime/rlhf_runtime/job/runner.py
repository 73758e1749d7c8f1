"""Runs an `RLHFJob`, on this machine or a cluster: prepare, start the roles, train, write everything down.

    prepare ─► claim epoch, find last commit ─► start roles at its versions ─► iterations ─► export ─► summary

The same call resumes: whatever ended an earlier run, this one goes on after the last committed step. So does one after
`stop`, which ends a run between two steps.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Mapping
from dataclasses import asdict, replace
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
from rlhf_runtime.errors import RlhfError, StateStoreError
from rlhf_runtime.executor import import_object
from rlhf_runtime.job.prepare import Prepared, UnsupportedError, prepare
from rlhf_runtime.job.reporter import TRAINING, Reporter
from rlhf_runtime.job.roles import flow_settings, make_roles
from rlhf_runtime.job.run_folder import RunFolder, RunFolderError
from rlhf_runtime.job.summary import COMPLETE, FAILED, INTERRUPTED, Outcome, finished_run, write_summary
from rlhf_runtime.resilience.checkpoint import Commit, CommitLog, newest_epoch
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

    def event(self, event: Event) -> None:
        if event.kind == "end":
            self.times.add(event)
        self._folder.append("events.jsonl", asdict(event))

    def incident(self, incident: Incident) -> None:
        self._folder.append("events.jsonl", {"kind": "incident", **asdict(incident)})
        self._folder.append("incidents.jsonl", asdict(incident))
        self._reporter.incident(incident)

    def recovered(self, role: str, worker: str, seconds: float) -> None:
        event = {"kind": "recovered", "role": role, "worker": worker, "time": time.time(), "seconds": seconds}
        self._folder.append("events.jsonl", event)
        self._reporter.recovered(worker, seconds)


class JobRunner:
    """Runs one job in one folder.

    Args:
        job: What to run.
        folder: Where its results go; resumed if it holds an unfinished run of this job.
        reporter: Told what happens.
        backend: Where the roles run; a name or a backend, by default Ray.
        controller_class: The control flow in place of the algorithm's: a class or `package.module:Class`.
        fresh: Whether to forget an earlier run, once data and models of the new one are there.
    """

    def __init__(
        self,
        job: RLHFJob,
        folder: RunFolder | Path,
        *,
        reporter: Reporter | None = None,
        backend: Backend | str | None = None,
        controller_class: str | None = None,
        fresh: bool = False,
    ) -> None:
        self._job = job
        self._folder = folder if isinstance(folder, RunFolder) else RunFolder(folder)
        self._reporter = reporter or Reporter()
        self._backend = backend
        self._controller_class = controller_class
        self._fresh = fresh
        self._recorder = _Recorder(self._folder, self._reporter)
        self._controller: Controller | None = None
        self._epoch = 0
        self._last: Commit | None = None
        self._lines: list[dict[str, Any]] = []
        self._step_ended = 0.0
        self._loop: TrainingLoop | None = None

    def stop(self) -> bool:
        """Ask the run to end after the present step, with a snapshot; may be called from any thread.

        Returns:
            Whether it will; false before the first step, when there is nothing to finish and nothing to save.
        """
        loop = self._loop
        if loop is not None:
            loop.stop()
        return loop is not None

    def run(self) -> Outcome:
        """Run to the end, until `stop`, or until something ends it.

        The summary is written in every case, but for a `fresh` run that fails before it forgets the earlier one.

        Raises:
            RlhfError: The run cannot start or go on; what was committed is whole.
            OSError: The folder cannot be written any more; what was committed is whole.
            KeyboardInterrupt: It was stopped; the same call goes on later.
        """
        self._folder.open()
        try:
            if not self._fresh:
                self._folder.check_manifest(self._job.to_manifest())
                if outcome := finished_run(self._folder, self._job):
                    self._tell_of_finished()
                    return outcome
                self._take_over()
            return self._run()
        finally:
            self._folder.close()

    @property
    def _total(self) -> int:
        return self._job.spec.algorithm.total_steps

    def _run(self) -> Outcome:
        try:
            complete = self._train()
        except BaseException as error:
            stopped = isinstance(error, KeyboardInterrupt)
            if stopped:
                self._reporter.phase("Stopping")
            with contextlib.suppress(OSError, StateStoreError):  # of a full disk, say; `error` tells more
                self._wind_up(
                    INTERRUPTED if stopped else FAILED, "stopped by Ctrl-C or SIGTERM" if stopped else str(error)
                )
            raise
        outcome = self._wind_up(COMPLETE, "") if complete else self._wind_up(INTERRUPTED, "stopped after a step")
        assert outcome is not None, "a run that has trained has an epoch"
        return outcome

    def _tell_of_finished(self) -> None:
        """Nothing is left to do, such as after a controller that was lost between its last line and its exit."""
        lines = self._folder.read_metrics(up_to_step=self._total)
        epoch = newest_epoch(open_state_store(self._folder.state))
        self._reporter.taken_over(epoch, lines, self._folder.incidents())

    def _take_over(self) -> None:
        """Claim the run and read what an earlier session left of it."""
        self._epoch, self._last = CommitLog(open_state_store(self._folder.state)).take_over()
        done = self._last.iteration + 1 if self._last else 0
        if not done and self._folder.has_trained():
            raise RunFolderError(
                f'"{self._folder.path}" has steps in metrics.jsonl, but its state is gone: '
                f'restore "{self._folder.state}", or {self._folder.how_to_start_anew}'
            )
        self._lines = self._folder.read_metrics(up_to_step=done)
        if self._last and not any(line["step"] == done and "seconds" in line for line in self._lines):
            # Ended between the commit and its line: nobody knows any more how long the step took.
            self._append({"step": done, "time": time.time(), "seconds": None, **self._last.metrics})
        self._reporter.taken_over(self._epoch, self._lines, self._folder.incidents())
        if done:
            self._reporter.resumed(done, self._total)

    def _train(self) -> bool:
        """Whether every step is made."""
        self._reporter.phase("Preparing data and models")
        prepared = prepare(self._job, self._reporter)
        roles = make_roles(self._job, prepared, self._reporter, accelerators=self._has_accelerators())
        control_flow = self._control_flow()
        if self._fresh:
            self._folder.clear()
            self._folder.check_manifest(self._job.to_manifest())
            self._take_over()
        self._reporter.phase(f"Starting {len(roles)} roles" if len(roles) > 1 else "Starting 1 role")
        self._controller = controller = self._make_controller(control_flow, prepared)
        self._reporter.engine_started(controller.engine)
        for role in roles:
            controller.register_role(role)
        controller.engine.wait_ready(lambda group: self._reporter.role_ready(group.role.name, len(group.seats)))
        self._reporter.phase(TRAINING)
        spec = self._job.spec
        settings = LoopSettings(
            total_steps=self._total,
            epoch=self._epoch,
            snapshot_every=spec.state.snapshot_every_steps,
            keep=spec.state.keep,
            evaluate_every=spec.algorithm.evaluation.every_steps,
            lag=self._lag,
        )
        self._loop = TrainingLoop(
            controller,
            open_state_store(self._folder.state),
            settings,
            start=self._last,
            on_step=self._record_step,
            on_snapshot=self._record_snapshot,
        )
        if not self._loop.run():
            return False
        self._reporter.phase("Writing the results")
        self._export(controller)
        return True

    def _has_accelerators(self) -> bool:
        """A pod has what it asks for; a machine without GPUs runs the same manifest on its processors."""
        import torch

        return self._backend == "ray-cluster" or torch.cuda.is_available()

    def _control_flow(self) -> type[Controller]:
        algorithm = self._job.spec.algorithm
        chosen = self._controller_class or (algorithm.custom.controller_class if algorithm.custom else None)
        cls = import_object(chosen, what="controller class") if chosen else _CONTROLLERS[algorithm.name]
        if not (isinstance(cls, type) and issubclass(cls, Controller)):
            raise UnsupportedError(f'"{chosen}" must be a subclass of `rlhf_runtime.api.Controller`')
        return cls

    def _make_controller(self, control_flow: type[Controller], prepared: Prepared) -> Controller:
        algorithm = self._job.spec.algorithm
        settings = EngineSettings(
            job=self._job.name,
            seed=algorithm.seed,
            epoch=self._epoch,
            state_location=self._folder.state,
            restore_versions=self._last.versions if self._last else {},
            lag=self._lag,
            spares=1,
            log_folder=str(self._folder.logs.resolve()),
        )
        controller = control_flow(backend=self._backend, settings=settings, observer=self._recorder)
        parameters = algorithm.custom.parameters if algorithm.custom else {}
        controller.configure(task=prepared.task, flow=flow_settings(self._job), parameters=parameters)
        return controller

    @property
    def _lag(self) -> int:
        return 1 if self._job.spec.algorithm.schedule is Schedule.ONE_STEP_OFF else 0

    def _export(self, controller: Controller) -> None:
        actor = controller.engine.groups.get(flow_settings(self._job).actor)
        if actor is not None and hasattr(actor.cls, "export"):
            inputs = {"folder": self._folder.model}
            controller.step(role=actor.role, method="export", inputs=inputs, outputs=[])
            controller.finish()

    def _record_step(self, record: StepRecord) -> None:
        now = record.ended
        if record.evaluation:
            if not self._is_known(record):
                self._append({"step": record.step, "time": now, **record.evaluation})
            self._reporter.step(record, {})
            return
        # Iterations overlap when the schedule is one step off: a step begins when the one before it ends.
        began = max(now - record.seconds, self._step_ended)
        self._step_ended = now
        self._recorder.times.add_step(began, now)
        seconds = max(now - began, 1e-6)
        flow = flow_settings(self._job)
        rates = {"samples_per_second": flow.prompts_per_step * flow.samples_per_prompt / seconds}
        if "tokens" in record.metrics:
            rates["tokens_per_second"] = record.metrics["tokens"] / seconds
        self._append({"step": record.step, "time": now, "seconds": seconds, **rates, **record.metrics})
        self._reporter.step(replace(record, seconds=seconds), rates)

    def _record_snapshot(self, step: int) -> None:
        self._folder.keep()
        self._reporter.snapshot(step)

    def _is_known(self, record: StepRecord) -> bool:
        """Whether an earlier session has written this evaluation: one of the same weights gives the same."""
        return any(line["step"] == record.step and line.keys() >= record.evaluation.keys() for line in self._lines)

    def _append(self, line: dict[str, Any]) -> None:
        self._folder.append("metrics.jsonl", line)
        self._lines.append(line)

    def _wind_up(self, status: str, failure: str) -> Outcome | None:
        """Write down how it went and end the processes; None where an earlier run must not be touched."""
        controller = self._controller
        try:
            outcome = self._summarize(controller, status, failure) if self._epoch else None
        finally:
            if controller is not None:
                controller.close()
        # Drawing takes a second or two, which a stopped run does not have.
        if status != INTERRUPTED and any("reward" in line for line in self._lines):
            draw_curve(self._lines, self._folder.path / "learning_curve.png", title=self._job.name)
        if outcome is not None:
            self._folder.keep()
        return outcome

    def _summarize(self, controller: Controller | None, status: str, failure: str) -> Outcome:
        engine = controller.engine if controller is not None and controller.started else None
        memory: Mapping[str, int] = {}
        # A backend without processes would first do what waits in its queue.
        if engine is not None and (status == COMPLETE or engine.backend.threaded):
            with contextlib.suppress(RlhfError):
                memory = engine.peak_memory(limit=2.0 if status == COMPLETE else 0.5)
        return write_summary(
            self._job,
            self._folder,
            groups=engine.groups if engine is not None else {},
            memory=memory,
            times=self._recorder.times,
            lines=self._lines,
            status=status,
            failure=failure,
        )
