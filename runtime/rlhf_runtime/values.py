"""Values that look like plain Python to a control flow and remember what a later step needs.

A control flow indexes responses like strings and formats a loss like a float. The tokens and their
log-probabilities that became those strings, and the inputs that became the loss, travel inside them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, SupportsIndex, overload

from rlhf_runtime.data_proto import DataProto
from rlhf_runtime.errors import DataError


class TokenizedText(list[str]):
    """A list of str that remembers the tokens it was decoded from, one row of `tokens` per string.

    Slices and sums of two keep both. What changes a list in place (`append`, `sort`, ...) would part the
    text from its tokens and is refused; `list(text)` gives a plain list.
    """

    __slots__ = ("tokens",)

    tokens: DataProto

    def __init__(self, texts: Iterable[str], tokens: DataProto) -> None:
        super().__init__(texts)
        if len(self) != len(tokens):
            raise DataError(f"{len(self)} texts cannot have {len(tokens)} rows of tokens")
        self.tokens = tokens

    @overload
    def __getitem__(self, key: SupportsIndex) -> str: ...

    @overload
    def __getitem__(self, key: slice) -> TokenizedText: ...

    def __getitem__(self, key: SupportsIndex | slice) -> str | TokenizedText:
        if isinstance(key, slice):
            return TokenizedText(super().__getitem__(key), self.tokens[key])
        return super().__getitem__(key)

    def __add__(self, other: Any) -> Any:
        if isinstance(other, TokenizedText):
            return TokenizedText([*self, *other], DataProto.concat([self.tokens, other.tokens]))
        return super().__add__(other)

    @staticmethod
    def concat(parts: Sequence[TokenizedText]) -> TokenizedText:
        """The texts and tokens of all parts, in order."""
        return TokenizedText(
            [text for part in parts for text in part], DataProto.concat([part.tokens for part in parts])
        )

    def copy(self) -> TokenizedText:
        """Another list of the same texts and tokens."""
        return self[:]

    def __reduce__(self) -> Any:
        raise TypeError("a TokenizedText is not pickled: the wire format carries it")

    def _refuse(self, *_args: Any, **_kwargs: Any) -> Any:
        raise DataError("a TokenizedText cannot be changed in place: make a plain list of it with list(text)")

    append = extend = insert = pop = remove = clear = sort = reverse = _refuse
    __setitem__ = __delitem__ = __iadd__ = __imul__ = _refuse


class Loss(float):
    """A float with the `recipe` it was computed from, so that `update` can compute its gradient elsewhere.

    The recipe is a nested mapping of tensors, `DataProto` and JSON values, among them the weights' version
    and the seed. Arithmetic gives a plain float: a sum of two losses has no recipe.
    """

    __slots__ = ("recipe",)

    recipe: Mapping[str, Any]

    def __new__(cls, value: float, recipe: Mapping[str, Any] = MappingProxyType({})) -> Loss:
        """Make a loss; the recipe is kept as it is given."""
        loss = super().__new__(cls, value)
        loss.recipe = recipe
        return loss

    def __reduce__(self) -> Any:
        raise TypeError("a Loss is not pickled: the wire format carries it")
