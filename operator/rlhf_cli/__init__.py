"""The `rlhf` command: one thin module per subcommand, imported when it is used."""
