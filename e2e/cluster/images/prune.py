"""Remove old builds. Only when no cluster runs, since its nodes link to what is removed."""

from e2e.cluster.images import base, buildah, folders, seed
from e2e.cluster.images.build import OURS, our_inputs


def prune() -> None:
    """Remove from the cache every build of our images but the newest, and what interrupted work left behind.

    Programs' images stay where they are the newest of their name, since they are small and made from elsewhere.
    """
    keep = {our_inputs(name) for name in OURS} | {base.name().rpartition(":")[2]}
    ours = {f"localhost/{name}" for name in (*OURS, "rlhf-base")}
    newest: dict[str, tuple[float, str]] = {}
    for path in folders.records().glob("*.json"):
        record = folders.read_json(path)
        if record is not None and record["reference"].rpartition(":")[0] not in ours:
            made = (path.stat().st_mtime, path.stem)
            newest[record["reference"]] = max(made, newest.get(record["reference"], made))
    keep |= {key for _, key in newest.values()}
    if not folders.records().is_dir():
        return
    for path in folders.records().glob("*.json"):
        if path.stem not in keep:
            path.unlink()
    names = [name for name in buildah.images() if name.rpartition(":")[2] not in keep]
    buildah.remove(names)
    known = folders.in_seed()
    digests = {(folders.read_json(path) or {}).get("digest") for path in folders.records().glob("*.json")}
    seed.remove([reference for reference, digest in known.items() if digest not in digests])
