"""Makes the generated files, or checks that they are up to date (`--check`).

These are the stubs of JobControl, from its .proto file, and `docs/api.md`, from the types of the API.
"""

import sys
import tempfile
from importlib.resources import files
from pathlib import Path

from grpc_tools import protoc

from rlhf_api import reference

REPOSITORY = Path(__file__).parents[1]
OPERATOR = REPOSITORY / "operator"
PROTO = "rlhf_api/job_control/job_control.proto"


def main() -> int:
    made = stubs() | {REPOSITORY / "docs" / "api.md": reference.render()}
    old = [str(path.relative_to(REPOSITORY)) for path, text in made.items() if not _is(path, text)]
    if "--check" in sys.argv:
        if old:
            print(f"out of date, run `make golden`: {', '.join(old)}")
        return bool(old)
    for path, text in made.items():
        path.write_text(text, encoding="utf-8")
    return 0


def stubs() -> dict[Path, str]:
    with tempfile.TemporaryDirectory() as folder:
        words = ["protoc", f"-I{OPERATOR}", f"-I{files('grpc_tools') / '_proto'}"]
        words += [f"--{kind}_out={folder}" for kind in ("python", "pyi", "grpc_python")]
        if code := protoc.main([*words, str(OPERATOR / PROTO)]):
            sys.exit(int(code))
        return {OPERATOR / path.relative_to(folder): path.read_text() for path in Path(folder).rglob("*_pb2*.py*")}


def _is(path: Path, text: str) -> bool:
    return path.exists() and path.read_text(encoding="utf-8") == text


if __name__ == "__main__":
    sys.exit(main())
