"""`python -m rlhf_cli` is `rlhf`."""

from rlhf_cli.main import main

main(prog_name="rlhf")
