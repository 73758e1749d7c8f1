"""What a spare process imports before it knows its role."""

import sys

import pytest

from rlhf_runtime.backends.preload import import_in_background
from rlhf_runtime.control.processes import RoleGroup, slow_imports
from rlhf_runtime.models.loading import SLOW_IMPORTS
from rlhf_runtime.role import Role
from rlhf_runtime.worker import Worker
from rlhf_runtime.workers.actor import ActorWorker
from rlhf_runtime.workers.rule import RuleWorker


class _OfAUser(Worker):
    imports = ("vllm", "numpy")


class _Plain:
    def imports(self) -> None:
        """No worker of ours: this may be anything."""


def _imports(*classes: type) -> list[str]:
    groups = {cls.__name__: RoleGroup(role=Role(name="role", worker_class=cls), cls=cls, replicas=1) for cls in classes}
    return list(slow_imports(groups))


@pytest.mark.parametrize(
    ("classes", "wanted"),
    [
        ((_Plain,), []),
        ((_OfAUser, _Plain), ["numpy", "vllm"]),
        ((RuleWorker,), ["rlhf_runtime.workers.rule"]),
        ((RuleWorker, ActorWorker), [*SLOW_IMPORTS, "rlhf_runtime.workers.actor", "rlhf_runtime.workers.rule"]),
    ],
)
def test_it_is_what_the_roles_of_the_job_import_late_and_no_module_of_a_user(
    classes: tuple[type, ...], wanted: list[str]
) -> None:
    assert sorted(_imports(*classes)) == sorted(wanted)


def test_what_is_not_installed_is_passed_over(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "colorsys", raising=False)
    import_in_background(["no_such_module", "colorsys.no_such_part", "colorsys"])
    assert "colorsys" in sys.modules
