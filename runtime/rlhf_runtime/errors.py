"""The runtime's own errors: each says what happened, where, and what to do about it."""


class RlhfError(Exception):
    """Base of every error that the runtime raises on purpose."""


class DataError(RlhfError, ValueError):
    """A batch that cannot be: lengths that differ, a column that is unknown or given twice."""


class UnknownColumnError(RlhfError, KeyError):
    """A column that the batch does not have; the message lists those that it has."""

    def __str__(self) -> str:
        return str(self.args[0]) if self.args else ""  # a KeyError would print the message's repr


class UnsupportedValueError(RlhfError, TypeError):
    """A value that the wire format cannot carry; the message gives its path and type, and what is allowed."""


class WireFormatError(RlhfError, ValueError):
    """Bytes that are not what their description says: truncated, foreign or hostile."""


class StateStoreError(RlhfError):
    """The state store could not do what was asked."""


class StateMissingError(StateStoreError, KeyError):
    """The state store holds nothing under this key."""

    def __str__(self) -> str:
        return str(self.args[0]) if self.args else ""  # a KeyError would print the message's repr


class StateStoreFullError(StateStoreError):
    """No space is left at the state store's location; what was committed before is whole."""


class StateCorruptError(StateStoreError):
    """A stored object is torn, foreign or altered: its checksum or its format does not match."""


class EpochFencedError(RlhfError):
    """A controller of an older epoch tried to write: a newer one has taken over."""
