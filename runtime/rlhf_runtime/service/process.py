"""The life of a controller's process, from its first line to its exit code.

health, log ─► job ─► JobControl ─► join Ray ─► import torch ─► JobRunner.run ─► Ending, exit code
│
Suspend, SIGTERM, Ray gone ──────────────────────────────┴──► Ending, exit code, at once
"""

from __future__ import annotations

import os
import socket
import sys
import traceback
from typing import TYPE_CHECKING, NoReturn

from rlhf_api import in_pod
from rlhf_api.ending import EndingOutcome
from rlhf_api.errors import InvalidManifestError
from rlhf_api.job_control import messages
from rlhf_api.reasons import ConditionReason
from rlhf_api.types import RLHFJob
from rlhf_api.validation import load_job
from rlhf_runtime.errors import EpochFencedError, FencedError, RlhfError
from rlhf_runtime.job.prepare import UnsupportedError
from rlhf_runtime.job.run_folder import RunFolder
from rlhf_runtime.service.board import Board
from rlhf_runtime.service.cluster import ClusterUnreachableError, RayNode
from rlhf_runtime.service.endings import Judgement, causes, judge_error, signature
from rlhf_runtime.service.health import HealthService
from rlhf_runtime.service.last_error import met_before
from rlhf_runtime.service.log import ControllerLog
from rlhf_runtime.service.refusals import refuse_what_no_pod_can_reach
from rlhf_runtime.service.reporter import ServiceReporter
from rlhf_runtime.service.server import ControlServer, Credentials, JobControl
from rlhf_runtime.service.settings import CLUSTER, ServiceSettings
from rlhf_runtime.service.stopping import StopRequests
from rlhf_runtime.service.termination import TerminationFile
from rlhf_runtime.service.watch import Watch

if TYPE_CHECKING:
    from rlhf_runtime.control.engine import Engine
    from rlhf_runtime.job.runner import JobRunner


class ControllerProcess:
    """One process for one run.

    Args:
        settings: Files, variables and ports.
        log: Where its lines go.
    """

    def __init__(self, settings: ServiceSettings, *, log: ControllerLog | None = None) -> None:
        self._settings = settings
        self._log = log or ControllerLog()
        self._board = Board()
        self._folder = RunFolder(settings.run_folder, state=settings.state, on_cluster=True)
        self._node: RayNode | None = None
        self._runner: JobRunner | None = None
        self._reporter: ServiceReporter | None = None
        self._stops: StopRequests | None = None
        self._termination = TerminationFile(settings.termination_file, board=self._board, log=self._log.line)

    def run(self) -> int:
        """Run the job to its end; gives the exit code."""
        self._log.also_to(self._folder.path / "logs" / "controller.log")
        pod = os.environ.get(in_pod.POD_VARIABLE) or socket.gethostname()
        self._log.line(f"controller in pod {pod}, pid {os.getpid()}")
        self._termination.draft()
        try:
            judgement = self._run()
        except Exception as error:  # whatever it is, the operator must hear of it
            judgement = self._judge(error)
        self._log.line(f"{judgement.outcome} ({judgement.reason}): {judgement.message.splitlines()[-1]}")
        self._termination.write(judgement)
        if self._node is not None:
            self._node.leave()
        return judgement.exit_code

    def _run(self) -> Judgement:
        health = HealthService(self._settings.health_port)
        job = self._read_job()
        self._board.begin(job)
        self._reporter = ServiceReporter(job, board=self._board, log=self._log, on_step=self._termination.draft)
        self._stops = StopRequests(
            finish=self._finish, end=self._end_suspended, grace=job.spec.suspend_grace_period_seconds
        )
        self._stops.start()
        control = JobControl(board=self._board, engine=self._engine, suspend=self._stops.request, log=self._log.line)
        server = ControlServer(control, Credentials.read(self._settings.secrets), port=self._settings.control_port)
        watch = Watch(
            board=self._board,
            reporter=self._reporter,
            health=health,
            node_ended=lambda: self._node.ended if self._node else None,
            on_node_end=self._end_without_ray,
            log=self._log.line,
        )
        self._log.line(f"health on port {health.port}, JobControl on port {server.port}")
        watch.start()
        try:
            refuse_what_no_pod_can_reach(job, self._settings)
            self._join_cluster()
            return self._train(job, self._reporter)
        finally:
            watch.close()
            self._stops.close()
            server.stop(grace=0.5)
            health.stop()

    def _train(self, job: RLHFJob, reporter: ServiceReporter) -> Judgement:
        reporter.phase("Loading torch")
        import torch

        from rlhf_runtime.job.runner import JobRunner
        from rlhf_runtime.job.summary import COMPLETE

        # The models that are made here are too small for more, which would only spin on processors of other pods.
        torch.set_num_threads(1)
        self._runner = JobRunner(job, self._folder, reporter=reporter, backend=self._settings.backend)
        outcome = self._runner.run()
        if outcome.status == COMPLETE:
            return Judgement(
                outcome=EndingOutcome.COMPLETE,
                reason=ConditionReason.ALL_STEPS_DONE,
                message=f"All {outcome.steps} steps are done; the model is in {self._folder.model}.",
            )
        return self._suspended()

    def _read_job(self) -> RLHFJob:
        return load_job(self._settings.job_file.read_text(encoding="utf-8"), source=self._settings.job_file.name)

    def _join_cluster(self) -> None:
        if self._settings.backend != CLUSTER:
            return
        address = self._settings.ray_address
        if not address:
            raise UnsupportedError("`RAY_ADDRESS` must be set to the head's `host:port`")
        self._board.tell(messages.PREPARING, f'Joining the Ray cluster at "{address}".')
        self._log.line(f'joining the Ray cluster at "{address}"')
        os.environ["RAY_ADDRESS"] = address
        self._node = RayNode(address, log=self._log.line)
        self._node.join()

    # ---- asked from outside

    def _engine(self) -> Engine | None:
        return self._reporter.engine if self._reporter is not None else None

    def _finish(self, word: str) -> bool:
        finishes = self._runner is not None and self._runner.stop()
        what = "the present step is finished, then a snapshot is taken" if finishes else "no step is being made"
        self._board.tell(messages.STOPPING, f"{word}: {what}.")
        self._log.line(f"{word}: {what}")
        return finishes

    def _suspended(self) -> Judgement:
        step = self._board.last_step
        return Judgement(
            outcome=EndingOutcome.SUSPENDED,
            reason=ConditionReason.SUSPENDED,
            message=f"Stopped after step {step}, which is saved." if step else "Stopped before the first step.",
        )

    def _end_suspended(self) -> None:
        self._log.line("the run ends at once; what is committed is whole")
        self._end_now(self._suspended())

    def _end_without_ray(self, words: str) -> None:
        message = f"Ray has ended in the controller's pod: {words}\nThe next controller joins the cluster anew."
        self._log.line(message)
        self._end_now(Judgement(outcome=EndingOutcome.INTERRUPTED, reason=ConditionReason.HEAD_LOST, message=message))

    def _end_now(self, judgement: Judgement) -> NoReturn:
        """End the process from a thread, whatever the main one is doing."""
        self._termination.write(judgement)
        if self._node is not None:
            self._node.abandon()
        sys.stdout.flush()
        os._exit(judgement.exit_code)

    # ---- the ending

    def _judge(self, error: BaseException) -> Judgement:
        training = self._board.phase in (messages.TRAINING, messages.STOPPING)
        if isinstance(error, InvalidManifestError):
            said = "\n".join(error.lines())
            self._log.line(said)
            advice = "The operator and the worker image must be of one release: check `spec.controller.image`."
            return Judgement(
                outcome=EndingOutcome.FAILED, reason=ConditionReason.INVALID_SPEC, message=f"{said}\n{advice}"
            )
        expected = isinstance(error, RlhfError | ClusterUnreachableError)
        self._log.line(str(error) if expected else "".join(traceback.format_exception(error)))
        judgement = judge_error(error, training=training)
        if judgement.outcome is not EndingOutcome.INTERRUPTED:
            return judgement
        if self._stops is not None and self._stops.asked:
            return self._suspended()
        fenced = any(isinstance(cause, EpochFencedError | FencedError) for cause in causes(error))
        if judgement.reason is ConditionReason.CONTROLLER_LOST and not fenced:
            known = met_before(self._folder.state, signature=signature(error), step=self._board.last_step)
            return judge_error(error, training=training, seen_before=known)
        return judgement
