"""Tokens never leave the process: every text that the suite writes goes through a `Redactor`.

Invariant: nothing that is logged, reported or printed contains a token of the target, neither as it
is nor in a form in which a server may return it (URL-encoded, JSON-escaped, base64).
"""

import base64
import json
import re
from collections.abc import Mapping
from typing import Any
from urllib.parse import quote, quote_plus


class Redactor:
    """Replaces each secret by its name, such as `$TOKEN`."""

    def __init__(self, secrets: Mapping[str, str]) -> None:
        """`secrets` maps the name that is shown to the secret text that it replaces."""
        forms = {
            form: f"${name}"
            for name, secret in secrets.items()
            if secret
            for form in _forms(secret)
        }
        # Longest first, so that no part of a longer form stays behind.
        ordered = sorted(forms.items(), key=lambda pair: -len(pair[0]))
        self._forms = [(_pattern(form), shown) for form, shown in ordered]

    def text(self, text: str) -> str:
        """Return the text without secrets."""
        for form, shown in self._forms:
            # The name has no backslash, which ``sub`` would interpret.
            text = form.sub(shown, text)
        return text

    def command(self, line: str) -> str:
        """Return a line for a shell without secrets, which has variables in their places."""
        for form, shown in self._forms:
            line = form.sub(lambda found, name=shown: _variable(found, name), line)  # type: ignore[misc]
        return line

    def value(self, value: Any) -> Any:
        """Return a JSON value without secrets. Keys stay as they are: the suite chose them."""
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, Mapping):
            return {key: self.value(item) for key, item in value.items()}
        if isinstance(value, list | tuple):
            return [self.value(item) for item in value]
        return value


# Shorter tokens are replaced as whole words only: "dev" would be found within many others.
_SHORT = 8


def _pattern(form: str) -> re.Pattern[str]:
    escaped = re.escape(form)
    return re.compile(escaped if len(form) >= _SHORT else rf"(?<!\w){escaped}(?!\w)")


def _variable(found: re.Match[str], name: str) -> str:
    """Return a variable as it stands where it was found: a shell reads none between quotes."""
    quoted = found.string.count("'", 0, found.start()) % 2 == 1
    return f"""'"{name}"'""" if quoted else name


def _forms(secret: str) -> set[str]:
    encoded = base64.b64encode(secret.encode()).decode().rstrip("=")
    # The suite also shows it with its capitals and small letters exchanged.
    shown = {secret, secret.swapcase()}
    # In a path, and in a query.
    quoted = {quote(secret), quote(secret, safe=""), quote_plus(secret)}
    return {*shown, *quoted, json.dumps(secret)[1:-1], encoded}
