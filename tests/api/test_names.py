import pytest

from rlhf_api import names

LONGEST_JOB = "j" * names.MAX_JOB_NAME_LENGTH


@pytest.mark.parametrize("name", ["a", "a1", "a-b", "ppo-spelling"])
def test_is_a_dns_1035_name(name: str) -> None:
    assert names.is_dns_1035(name)


@pytest.mark.parametrize("name", ["", "1a", "-a", "a-", "A", "a_b", "a.b", "a\n"])
def test_is_not_a_dns_1035_name(name: str) -> None:
    assert not names.is_dns_1035(name)


def test_children_of_the_longest_job_have_names_that_kubernetes_takes() -> None:
    children = [names.controller, names.token_secret, names.runtime_config]
    assert all(len(child(LONGEST_JOB)) <= 63 for child in children)
    assert len(names.ray_cluster(LONGEST_JOB)) <= 53


def test_role_labels_include_those_of_the_job() -> None:
    assert names.role_labels("j", "critic").items() >= names.job_labels("j").items()
