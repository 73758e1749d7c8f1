"""Models and where they come from: the small built-in one, a folder, or a Hugging Face id."""
