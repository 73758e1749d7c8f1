"""x."""
def main() -> None:
    """X."""
