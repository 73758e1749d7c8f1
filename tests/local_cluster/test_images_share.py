"""Equal large files of two stores become one, and no others."""

import os
from pathlib import Path

import pytest

from e2e.cluster.images import share

LARGE = b"x" * share.SMALLEST_BYTES


def put(path: Path, content: bytes, *, mode: int = 0o644) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    path.chmod(mode)
    os.utime(path, (1_700_000_000, 1_700_000_000))
    return path


@pytest.mark.parametrize(
    ("content", "mode", "place", "want_shared"),
    [
        pytest.param(LARGE, 0o644, "lib/torch.so", True, id="the same file"),
        pytest.param(b"y" * len(LARGE), 0o644, "lib/torch.so", False, id="another content of the same size and time"),
        pytest.param(LARGE, 0o600, "lib/torch.so", False, id="another mode"),
        pytest.param(LARGE, 0o644, "lib/other.so", False, id="another name"),
        pytest.param(LARGE[1:], 0o644, "lib/torch.so", False, id="a small file"),
    ],
)
def test_only_equal_large_files_become_links(
    tmp_path: Path, content: bytes, mode: int, place: str, want_shared: bool
) -> None:
    ours = put(tmp_path / "overlay/abc/diff/lib/torch.so", LARGE)
    theirs = put(tmp_path / "snapshots/7/fs" / place, content, mode=mode)

    saved = share.share(tmp_path / "overlay", tmp_path / "snapshots")

    assert (saved == len(LARGE)) == want_shared
    assert theirs.samefile(ours) == want_shared
    assert theirs.read_bytes() == content


def test_sharing_again_saves_nothing_more(tmp_path: Path) -> None:
    put(tmp_path / "overlay/abc/diff/lib/torch.so", LARGE)
    put(tmp_path / "snapshots/7/fs/lib/torch.so", LARGE)
    share.share(tmp_path / "overlay", tmp_path / "snapshots")

    assert share.share(tmp_path / "overlay", tmp_path / "snapshots") == 0
