"""Pure: what is seen of a job becomes what is to be done about it."""
