"""The cluster for the tests: the running one, if it was made here, else one that is brought up and taken down again."""

import re
import shutil
import signal
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from types import FrameType

import pytest

from e2e.cluster import kind, lifecycle, paths
from e2e.cluster.config import ClusterConfig
from e2e.cluster.errors import CannotRunHereError, ClusterError
from e2e.cluster.faults import Faults
from e2e.cluster.kubectl import kubectl
from e2e.cluster.steps import step
from e2e.cluster.up import need_this_machine, prepare, up
from e2e.dump import default_folder, dump
from e2e.lab import Lab
from e2e.operator import Operator

_FAILED = pytest.StashKey[bool]()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--keep-cluster", action="store_true", help="Leave a cluster up that the tests started.")


def pytest_configure() -> None:
    # A cluster that was started here must go also when CI ends the run.
    signal.signal(signal.SIGTERM, _interrupt)


def _interrupt(signum: int, frame: FrameType | None) -> None:
    raise KeyboardInterrupt


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    if report.failed:
        for node in item.listchain():  # also its module, for what the module's tests share
            node.stash[_FAILED] = True
    return report


@pytest.fixture(scope="session")
def built(request: pytest.FixtureRequest) -> None:
    """All that a cluster is made of, built; with its progress shown."""
    capture = request.config.pluginmanager.getplugin("capturemanager")
    if not paths.KIND:
        with capture.global_and_fixture_disabled(), _skipped_where_it_cannot_run():
            print()
            need_this_machine()
            prepare(ClusterConfig())


@pytest.fixture(scope="session")
def cluster(built: None, request: pytest.FixtureRequest) -> Iterator[ClusterConfig]:
    """The running cluster; brought up first if there is none, with its progress shown."""
    capture = request.config.pluginmanager.getplugin("capturemanager")
    with capture.global_and_fixture_disabled():
        started = _bring_up()
    yield _configuration()
    if started and not request.config.getoption("--keep-cluster"):
        with capture.global_and_fixture_disabled():
            _take_down()


@contextmanager
def _skipped_where_it_cannot_run() -> Iterator[None]:
    try:
        yield
    except CannotRunHereError as error:
        pytest.skip(str(error))
    except ClusterError as error:
        pytest.exit(f"the cluster did not come up: {error}", returncode=1)


def _bring_up() -> bool:
    """Bring the cluster up, or its images up to date; returns whether it was started here."""
    print()
    with _skipped_where_it_cannot_run():
        already = kind.is_up() if paths.KIND else lifecycle.is_up()
        if paths.KIND:
            kind.up()
        else:
            up(lifecycle.configuration() if already else ClusterConfig())
    refuse_other_clusters()
    return not already


def _configuration() -> ClusterConfig:
    return kind.CONFIG if paths.KIND else lifecycle.configuration()


def _take_down() -> None:
    if paths.KIND:
        kind.down()
        return
    with lifecycle.locked(), step("cluster-down"):
        lifecycle.remove_everything()
    assert lifecycle.leftovers() == []


def refuse_other_clusters() -> None:
    """End the whole run if kubectl would talk to a cluster that was not made here."""
    context = kubectl("config", "current-context").strip()
    if context != paths.CONTEXT:
        pytest.exit(f'the kube context is "{context}", not "{paths.CONTEXT}": tests run only on a cluster made here')


@pytest.fixture
def lab(cluster: ClusterConfig, request: pytest.FixtureRequest) -> Iterator[Lab]:
    """The cluster with a namespace of the test's own; after a failure its state is in ``e2e-failures/``."""
    with _namespace(cluster, request.node.name.removeprefix("test_"), request.node) as lab:
        yield lab


@pytest.fixture
def second_lab(cluster: ClusterConfig, request: pytest.FixtureRequest) -> Iterator[Lab]:
    """Another namespace for the same test."""
    with _namespace(cluster, "second-" + request.node.name.removeprefix("test_"), request.node) as lab:
        yield lab


@pytest.fixture(scope="module")
def module_lab(cluster: ClusterConfig, request: pytest.FixtureRequest) -> Iterator[Lab]:
    """The same for all tests of a module, which share what takes long to start."""
    with _namespace(cluster, request.node.path.stem.removeprefix("test_"), request.node) as lab:
        yield lab


@contextmanager
def _namespace(cluster: ClusterConfig, name: str, node: pytest.Item | pytest.Module) -> Iterator[Lab]:
    short = re.sub(r"[^a-z0-9]+", "-", name.lower())[:50].strip("-")
    namespace = f"t-{short}"
    kubectl("create", "namespace", namespace)
    yield Lab(namespace, kind.KindFaults(cluster) if paths.KIND else Faults(cluster), cluster)
    folder = default_folder() / short
    shutil.rmtree(folder, ignore_errors=True)
    if node.stash.get(_FAILED, False):
        dump(namespace, folder)
        print(f"objects, events and logs are in {folder}")
    kubectl("delete", "namespace", namespace, "--wait=false")


@pytest.fixture(scope="session")
def operator(cluster: ClusterConfig) -> Operator:
    """The operator, installed by Helm from this tree; what an earlier run left of it is upgraded."""
    operator = Operator()
    with step("install the operator"):
        operator.install()
    return operator
