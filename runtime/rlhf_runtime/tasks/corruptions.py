"""Wrong answers that look right: what a preference model must learn to tell from the answer."""

import random
from collections.abc import Callable

LETTERS = "abcdefghijklmnopqrstuvwxyz"


def near_miss(answer: str, *, rng: random.Random) -> str:
    """The answer with one or two small mistakes; never the answer itself.

    Args:
        answer: at least one letter.
        rng: decides which mistakes.
    """
    while True:
        text = rng.choice(_MISTAKES)(answer, rng)
        if rng.random() < 0.25:
            text = rng.choice(_MISTAKES)(text, rng)
        if text != answer:
            return text


def _replace(text: str, rng: random.Random) -> str:
    position = rng.randrange(len(text))
    # Half the time by a letter of the word, which is the mistake that a speller makes.
    letter = rng.choice(text) if rng.random() < 0.5 else rng.choice(LETTERS)
    return text[:position] + letter + text[position + 1 :]


def _swap(text: str, rng: random.Random) -> str:
    first, second = (rng.randrange(len(text)) for _ in range(2))
    letters = list(text)
    letters[first], letters[second] = letters[second], letters[first]
    return "".join(letters)


def _drop(text: str, rng: random.Random) -> str:
    position = rng.randrange(len(text))
    return text[:position] + text[position + 1 :] if len(text) > 1 else text


def _insert(text: str, rng: random.Random) -> str:
    position = rng.randrange(len(text) + 1)
    letter = rng.choice(text) if rng.random() < 0.5 else rng.choice(LETTERS)
    return text[:position] + letter + text[position:]


def _double(text: str, rng: random.Random) -> str:
    position = rng.randrange(len(text))
    return text[: position + 1] + text[position:]


def _change_case(text: str, rng: random.Random) -> str:
    position = rng.randrange(len(text))
    return text[:position] + text[position].swapcase() + text[position + 1 :]


_MISTAKES: list[Callable[[str, random.Random], str]] = [
    _replace,
    _replace,
    _swap,
    _swap,
    _drop,
    _insert,
    _double,
    _change_case,
]
