"""What the images weigh and how long they took, as measured when they were built and unpacked."""

from dataclasses import dataclass

from e2e.cluster.images import folders


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """One image; seconds are None where the machine did not do that work itself."""

    reference: str
    bytes: int
    build_seconds: float | None
    current: bool
    """Whether it is the version that is in the seed."""


def figures() -> list[Figure]:
    """All images in the cache, by name."""
    in_seed = set(folders.in_seed().values())
    found = []
    for path in sorted(folders.records().glob("*.json")):
        if (record := folders.read_json(path)) is not None:
            found.append(
                Figure(
                    reference=record["reference"],
                    bytes=record["size"],
                    build_seconds=record.get("build_seconds"),
                    current=record["digest"] in in_seed,
                )
            )
    return sorted(found, key=lambda figure: figure.reference)


def unpack_seconds() -> dict[str, float]:
    """How long each import into the seed took, by the names of its images."""
    return dict((folders.read_json(folders.seed_record()) or {}).get("seconds", {}))
