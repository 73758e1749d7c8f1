"""The folder of a run: everything that it leaves behind, and the lock that keeps a second process out.

runs/NAME/manifest.json     the job as it was started
          state/            commits, snapshots, update logs: what a resumed run needs
          metrics.jsonl     one line per step or evaluation
          events.jsonl      the DAG: every node's readiness, times, bytes and place
          logs/             one file per worker
          summary.json      the outcome
          learning_curve.png
          model/            the trained model, for `transformers`
"""

from __future__ import annotations

import fcntl
import json
import os
import shutil
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import IO, Any

from rlhf_runtime.errors import RlhfError


class RunFolderError(RlhfError):
    """The run's folder is in use, or belongs to another job."""


class RunFolder:
    """One run's folder; `open` locks it for this process.

    Args:
        path: Where it is or will be.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._lock: IO[str] | None = None
        self._logs: dict[str, IO[str]] = {}

    @property
    def state(self) -> Path:
        """Where the state store lives."""
        return self.path / "state"

    @property
    def model(self) -> Path:
        """Where the trained model is written."""
        return self.path / "model"

    @property
    def logs(self) -> Path:
        """Where the workers' output goes."""
        return self.path / "logs"

    def open(self) -> None:
        """Make the folder if need be and lock it; nothing happens if this object has the lock already.

        Raises:
            RunFolderError: Another process runs in it, or it cannot be written.
        """
        if self._lock is not None:
            return
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            lock = (self.path / ".lock").open("a+")
        except OSError as error:
            raise RunFolderError(f'the run\'s folder "{self.path}" cannot be written: {error.strerror}') from error
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            with lock:
                lock.seek(0)
                holder = lock.read().strip() or "unknown"
            raise RunFolderError(f'another process ({holder}) runs in "{self.path}"') from error
        lock.truncate(0)
        lock.write(f"pid {os.getpid()}\n")
        lock.flush()
        self._lock = lock

    def close(self) -> None:
        """Close the files and give up the lock."""
        self._close_logs()
        if self._lock is not None:
            self._lock.close()
            self._lock = None

    def check_manifest(self, manifest: Mapping[str, Any]) -> None:
        """Keep the job's manifest; once a step was made, compare it with the one that the run was started with.

        Raises:
            RunFolderError: They differ in something that a resumed run cannot change.
        """
        file = self.path / "manifest.json"
        wanted = _fixed_part(manifest)
        if file.exists() and self._has_steps():
            differing = _differences(_fixed_part(_with_defaults(file.read_text(encoding="utf-8"))), wanted)
            if differing:
                raise RunFolderError(
                    f'"{self.path}" holds a run of another manifest; they differ in {", ".join(differing)}. '
                    "Start anew with --fresh, or give the job another name"
                )
        write_json(file, manifest)

    def read_metrics(self, *, up_to_step: int) -> list[dict[str, Any]]:
        """The metric lines up to a step; the lines of steps that were not committed are dropped from the file."""
        file = self.path / "metrics.jsonl"
        if not file.exists():
            return []
        self._close_logs()  # the file is about to be replaced
        lines = [json.loads(line) for line in file.read_text().splitlines() if line.endswith("}")]  # a torn one: none
        kept = [line for line in lines if line["step"] <= up_to_step]
        replace_text(file, "".join(json.dumps(line) + "\n" for line in kept))
        return kept

    def append(self, name: str, line: Mapping[str, Any]) -> None:
        """Add a line to one of the `.jsonl` files; the file stays open, since events come by the dozen each step."""
        file = self._logs.get(name)
        if file is None:
            file = self._logs[name] = (self.path / name).open("a", buffering=1, encoding="utf-8")
        file.write(json.dumps(line) + "\n")

    def restarts(self) -> Counter[str]:
        """How many deaths of each role's workers the run has seen, in all its sessions."""
        file = self.path / "events.jsonl"
        marked = (line for line in file.open(encoding="utf-8") if '"incident"' in line) if file.exists() else ()
        events = (json.loads(line) for line in marked if line.endswith("}\n"))
        return Counter(event["role"] for event in events if event["kind"] == "incident")

    def summary(self) -> dict[str, Any] | None:
        """The last summary, if there is one."""
        file = self.path / "summary.json"
        return json.loads(file.read_text()) if file.exists() else None

    def clear(self) -> None:
        """Remove all that an earlier run left."""
        self._close_logs()
        for entry in self.path.iterdir():
            if entry.name == ".lock":
                continue
            if entry.is_dir():
                shutil.rmtree(entry)
            else:
                entry.unlink()

    def _close_logs(self) -> None:
        for file in self._logs.values():
            file.close()
        self._logs.clear()

    def _has_steps(self) -> bool:
        file = self.path / "metrics.jsonl"
        return file.exists() and file.stat().st_size > 0


def write_json(file: Path, value: Mapping[str, Any]) -> None:
    """Write a JSON file whole or not at all."""
    replace_text(file, json.dumps(value, indent=2) + "\n")


def replace_text(file: Path, text: str) -> None:
    """Write a text file whole or not at all."""
    draft = file.with_name(f".{file.name}.draft")
    try:
        draft.write_text(text, encoding="utf-8")
        draft.replace(file)
    except OSError:
        draft.unlink(missing_ok=True)
        raise


_CHANGEABLE = (("algorithm", "totalSteps"), ("algorithm", "evaluation"), ("state",), ("suspend",))


def _with_defaults(text: str) -> dict[str, Any]:
    """A stored manifest with the defaults of fields that are newer than it."""
    from pydantic import ValidationError

    from rlhf_api.types import RLHFJob

    try:
        return RLHFJob.model_validate_json(text, by_alias=True, by_name=False).to_manifest()
    except ValidationError:  # the types have moved on: compare what there is
        stored: dict[str, Any] = json.loads(text)
        return stored


def _fixed_part(manifest: Mapping[str, Any]) -> dict[str, Any]:
    spec: dict[str, Any] = json.loads(json.dumps(manifest.get("spec", {})))
    for *parents, last in _CHANGEABLE:
        section: Any = spec
        for name in parents:
            section = section.get(name, {})
        section.pop(last, None)
    for role in spec.get("roles", []):
        role.pop("restartPolicy", None)
        role.pop("nodePool", None)
    return spec


def _differences(old: Any, new: Any, path: str = "spec") -> list[str]:
    if isinstance(old, dict) and isinstance(new, dict):
        names = sorted(old.keys() | new.keys())
        return [d for name in names for d in _differences(old.get(name), new.get(name), f"{path}.{name}")]
    if isinstance(old, list) and isinstance(new, list) and len(old) == len(new):
        return [d for i, (a, b) in enumerate(zip(old, new, strict=True)) for d in _differences(a, b, f"{path}[{i}]")]
    return [] if old == new else [f"`{path}`"]
