"""Subjects whose new examples are refused: tags, kept as keyed hashes and not as they are."""

from __future__ import annotations

import hashlib
import hmac
import json
import secrets
from collections.abc import Mapping
from typing import Any, NamedTuple

from engram.errors import EngramError, shown
from engram.memory.examples import Scalar, Tags, checked_tags
from engram.memory.files import refuse_unless

_BYTES = 32
_Entry = tuple[tuple[str, ...], str]


class Block(NamedTuple):
    """The record of a subject that is blocked: since when, the names of its tags, and why.

    >>> Block(when="2024-01-01T00:00:00+00:00", names=("customer",), reason="withdrawn").names
    ('customer',)
    """

    when: str
    names: tuple[str, ...]
    reason: str


class Blocks(NamedTuple):
    """All subjects that are blocked; a value, so that it changes in one step.

    A subject is one tag or several, and an example is of it if it has them all. Names of tags are
    kept as they are, values only within a hash that needs a key. The key is random and kept beside
    the hashes unless the user has a ``secret`` of their own, which is kept nowhere.
    """

    key: bytes | None = None
    secret: bool = False
    entries: Mapping[_Entry, Block] = {}

    def of(self, tags: Tags) -> _Entry | None:
        """Return the blocked subject that an example with these tags is of."""
        for names in dict.fromkeys(names for names, _ in self.entries):
            if all(name in tags for name in names):
                entry = names, self._digest({name: tags[name] for name in names})
                if entry in self.entries:
                    return entry
        return None

    def with_subject(self, subject: Tags, when: str, reason: str) -> Blocks:
        """Return these and one more; the first record of a subject stays."""
        own = self if self.key is not None else self._replace(key=secrets.token_bytes(_BYTES))
        entry = tuple(sorted(subject)), own._digest(subject)
        record = Block(when, entry[0], reason)
        return own._replace(entries={entry: record, **own.entries})

    def without(self, subject: Tags) -> Blocks:
        """Return all but one."""
        entry = tuple(sorted(subject)), self._digest(subject) if self.key is not None else ""
        if entry not in self.entries:
            raise EngramError(
                "These tags are not blocked; give all tags of the subject, as blocked."
            )
        return self._replace(
            entries={each: own for each, own in self.entries.items() if each != entry}
        )

    def _digest(self, subject: Tags) -> str:
        assert self.key is not None
        plain = {name: _plain(value) for name, value in subject.items()}
        text = json.dumps(plain, sort_keys=True, separators=(",", ":"))
        return hashlib.blake2b(text.encode("utf-8", "surrogatepass"), key=self.key).hexdigest()

    def _check(self) -> str:
        """Return what tells whether a secret is the one under which the subjects were kept."""
        assert self.key is not None
        return hashlib.blake2b(b"engram-memory", key=self.key).hexdigest()

    def to_json(self) -> dict[str, Any]:
        """Return what a file holds of them."""
        assert self.key is not None
        entries = [
            [*names, digest, own.when, own.reason] for (names, digest), own in self.entries.items()
        ]
        key = None if self.secret else self.key.hex()
        return {"key": key, "check": self._check(), "entries": entries}

    def from_json(self, document: Any) -> Blocks:  # noqa: ANN401  # JSON
        """Return those that `to_json` gave, under the own secret if they were kept under one."""
        refuse_unless("blocks", isinstance(document, dict))
        kept, check, entries = document["key"], document["check"], document["entries"]
        refuse_unless("blocks", isinstance(check, str) and isinstance(entries, list))
        if kept is None and not self.secret:
            raise EngramError(
                "The memory's blocked subjects are kept under a secret; give it as secret=."
            )
        refuse_unless("blocks", kept is None or isinstance(kept, str))
        own = self if kept is None else Blocks(bytes.fromhex(kept))
        refuse_unless("blocks", own.key is not None and 16 <= len(own.key) <= 64)
        if not hmac.compare_digest(own._check(), check):
            raise EngramError("The secret is not the one that the blocked subjects are kept under.")
        found = {}
        for each in entries:
            whole = isinstance(each, list) and all(isinstance(part, str) for part in each)
            refuse_unless("blocks", whole and len(each) > 3)
            *names, digest, when, reason = each
            found[tuple(names), digest] = Block(when, tuple(names), reason)
        return own._replace(entries=found)


def checked_secret(secret: object) -> Blocks:
    """Return that nothing is blocked so far, under a secret if there is one."""
    if secret is None:
        return Blocks()
    if not isinstance(secret, bytes) or not 16 <= len(secret) <= 64:
        raise EngramError("secret must be 16 to 64 bytes, such as secrets.token_bytes(32).")
    return Blocks(secret, secret=True)


def checked_subject(tags: object) -> Tags:
    """Return the tags of a subject, or refuse what is none."""
    subject = checked_tags(tags)
    if not subject:
        raise EngramError(f"tags is {shown(tags)}; name one tag at least, {{'customer': 'x'}}.")
    return subject


def _plain(value: Scalar) -> Scalar:
    """Return one value for all that are equal: 1, 1.0 and True are."""
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    return int(value) if isinstance(value, bool) else value
