"""Makes the stubs of JobControl from its .proto file, or checks that they are up to date (`--check`)."""

import sys
import tempfile
from importlib.resources import files
from pathlib import Path

from grpc_tools import protoc

OPERATOR = Path(__file__).parents[1] / "operator"
PROTO = "rlhf_api/job_control/job_control.proto"


def main() -> int:
    with tempfile.TemporaryDirectory() as folder:
        words = ["protoc", f"-I{OPERATOR}", f"-I{files('grpc_tools') / '_proto'}"]
        words += [f"--{kind}_out={folder}" for kind in ("python", "pyi", "grpc_python")]
        if code := protoc.main([*words, str(OPERATOR / PROTO)]):
            return int(code)
        made = {path.relative_to(folder): path.read_text() for path in Path(folder).rglob("*_pb2*.py*")}
    old = [str(path) for path, text in made.items() if not _is(OPERATOR / path, text)]
    if "--check" in sys.argv:
        if old:
            print(f"out of date, run `make golden`: {', '.join(old)}")
        return bool(old)
    for path, text in made.items():
        (OPERATOR / path).write_text(text)
    return 0


def _is(path: Path, text: str) -> bool:
    return path.exists() and path.read_text() == text


if __name__ == "__main__":
    sys.exit(main())
