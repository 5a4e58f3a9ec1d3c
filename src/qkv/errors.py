"""The user's mistakes, as one exception, and the hint that goes with a mistyped name. Standard library only."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class UserError(Exception):
    """A mistake of the person who called: the message says what is wrong, where, and what would be right.

    The command line prints the message and exits with code 2; in Python it is an ordinary exception.
    """


class InputTooLong(UserError, ValueError):
    """An input is longer than a model can read: a mistake of the person, and a ValueError to code that calls."""


def nearest(name: str, known: Iterable[str]) -> str:
    """The hint " Did you mean 'x'?" with the known name closest to `name`, or "" when none is close.

    Upper and lower case are not told apart, so "CMUdict" finds "cmudict". The hint starts with a space:
    it is appended to a sentence.
    """
    folded = {candidate.casefold(): candidate for candidate in known}
    close = difflib.get_close_matches(name.casefold(), folded, n=1, cutoff=0.6)
    return f" Did you mean '{folded[close[0]]}'?" if close else ""
