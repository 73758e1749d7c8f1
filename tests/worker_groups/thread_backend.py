"""Hosts that are threads: as parallel as processes, in one."""

import queue
from concurrent.futures import ThreadPoolExecutor

from rlhf_runtime.backends.inprocess import InProcessBackend, run_operation


class ThreadBackend(InProcessBackend):
    """The in-process backend with a thread for each host."""

    name = "threads"
    threaded = True

    def __init__(self):
        super().__init__()
        self._threads = {}
        self._answers = queue.SimpleQueue()

    def submit(self, host, operation, arguments, buffers, on_done):
        thread = self._threads.setdefault(host, ThreadPoolExecutor(1))

        def run():
            outcome = run_operation(host, operation, arguments, buffers)
            self._answers.put(lambda: on_done(outcome))

        thread.submit(run)

    def pump(self, timeout):
        if timer := self._due_timer():
            timer.callback()
            return True
        try:
            self._answers.get(timeout=timeout)()
        except queue.Empty:
            return False
        return True

    def close(self):
        for thread in self._threads.values():
            thread.shutdown(wait=False)
