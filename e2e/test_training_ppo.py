"""The main road: `helm install`, `kubectl apply` of the example that `rlhf run` takes too, and it trains."""

import json
import re
from collections.abc import Iterator

import pytest
import yaml

from e2e.cluster.config import POOL_LABEL
from e2e.jobs import EXAMPLES, Job, apply
from e2e.lab import Lab
from e2e.manifests import pod
from e2e.operator import Operator

pytestmark = pytest.mark.timeout(1200)

TRAIN_SECONDS = 900
ROLES = ("actor", "critic", "reward", "reference")
METHODS = {"actor": "generate", "critic": "compute_values", "reward": "score", "reference": "compute_log_prob"}
"""A method that only this role has a reason to run in every step."""


@pytest.fixture(scope="module")
def job(operator: Operator, module_lab: Lab) -> Iterator[Job]:
    yield apply(module_lab, EXAMPLES / "ppo-spelling.yaml")
    module_lab.kubectl("delete", "rlhfjob", "--all", "--timeout=60s")


def test_each_role_runs_on_a_node_of_its_own_pool(job: Job) -> None:
    job.wait("RolesReady")
    pools = {node["metadata"]["name"]: node["metadata"]["labels"][POOL_LABEL] for node in _nodes(job.lab)}
    manifest = yaml.safe_load((EXAMPLES / "ppo-spelling.yaml").read_text())
    wanted = {role["name"]: role["nodePool"]["nodeSelector"][POOL_LABEL] for role in manifest["spec"]["roles"]}
    assert {role: [pools[p["spec"]["nodeName"]] for p in job.pods(role)] for role in ROLES} == {
        role: [pool] for role, pool in wanted.items()
    }


def test_the_log_of_each_roles_pod_shows_that_roles_own_steps(job: Job) -> None:
    job.wait("Running")
    job.wait_step(5)
    for role in ROLES:
        text = job.logs(role)
        own = re.findall(rf"^.*\bstep +(\d+)\b.*\b{role}-worker-000\b.*$", text, re.MULTILINE)
        assert len(set(own)) >= 4, f"{role}:\n{text[-2000:]}"
        others = [other for other in ROLES if other != role and f"{other}-worker-" in text]
        assert not others, f"the log of {role} has lines of {others}"
    assert re.search(r"step +5\b", job.logs("controller"))


def test_kubectl_get_tells_the_state_at_a_glance_in_120_columns(job: Job) -> None:
    table = job.lab.kubectl("get", "rlhfjob")
    assert max(map(len, table.splitlines())) <= 120, table
    assert "4/4" in table and "PPO" in table, table


def test_it_completes_and_has_learned(job: Job) -> None:
    job.lab.kubectl(
        "wait",
        "rlhfjob",
        job.name,
        "--for=condition=Complete",
        f"--timeout={TRAIN_SECONDS}s",
        timeout=TRAIN_SECONDS + 30,
    )
    status = job.status
    assert status["progress"]["step"] == 40
    assert float(status["progress"]["evaluation"]) >= 0.85
    assert all(role.get("restarts", 0) == 0 for role in status["roles"])


def test_its_gpus_are_free_and_its_log_is_kept(job: Job) -> None:
    job.lab.wait("only the controller's pod is left", lambda: _components(job) == {"controller"}, timeout=60)
    assert "step 40" in re.sub(" +", " ", job.logs("controller"))


def test_the_trained_model_loads_with_transformers(job: Job) -> None:
    claim = next(c["metadata"]["name"] for c in job.lab.get("persistentvolumeclaims")["items"])
    load = (
        "import transformers, glob; folder = glob.glob('/rlhf/state/*/model')[0]; "
        "model = transformers.AutoModelForCausalLM.from_pretrained(folder); "
        "tokenizer = transformers.AutoTokenizer.from_pretrained(folder); "
        "given = tokenizer('abc=', return_tensors='pt'); "
        "print(tokenizer.decode(model.generate(**given, max_new_tokens=5)[0]))"
    )
    reader = pod("reader", "python", "-c", load)
    reader["spec"]["volumes"] = [{"name": "state", "persistentVolumeClaim": {"claimName": claim}}]
    reader["spec"]["containers"][0]["volumeMounts"] = [{"name": "state", "mountPath": "/rlhf/state"}]
    job.lab.apply(reader)
    job.lab.kubectl("wait", "pod/reader", "--for=jsonpath={.status.phase}=Succeeded", "--timeout=180s", timeout=200)
    assert "cba" in job.lab.kubectl("logs", "reader")


def _nodes(lab: Lab) -> list[dict[str, dict[str, dict[str, str]]]]:
    found: list[dict[str, dict[str, dict[str, str]]]] = json.loads(lab.kubectl("get", "nodes", "-o=json"))["items"]
    return found


def _components(job: Job) -> set[str]:
    return {pod["metadata"]["labels"]["rlhf.dev/component"] for pod in job.all_pods()}
