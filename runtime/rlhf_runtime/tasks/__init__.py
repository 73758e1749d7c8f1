"""Where prompts and answers come from, and what counts as right."""
