"""Control flow: who asks whom for what, and what happens when somebody does not answer."""
