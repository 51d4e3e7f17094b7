"""How the docstrings of this package read on the site.

References such as ``:class:`~crac.losses.CRaCLoss``` become links, arguments that share a sentence get an entry each,
and the arguments of a pydantic model are its fields.
"""

import re
from typing import Any

from griffe import Class, Extension, NameResolutionError, Object

ROLE = re.compile(r":(?:attr|class|data|func|meth|mod):`(~?)([^`]+)`")
SHARED = re.compile(r"^( {4})((?:\w+, )+\w+): (.*(?:\n {8}.*)*)$", re.MULTILINE)


class Docstrings(Extension):
    """Rewrites the docstring of every object."""

    def on_object(self, *, obj: Object, **_: Any) -> None:
        """Rewrite one docstring."""
        if not obj.docstring:
            return
        text = ROLE.sub(lambda role: link(obj, role[2], bool(role[1])), obj.docstring.value)
        text = SHARED.sub(lambda shared: "\n".join(f"    {name}: {shared[3]}" for name in shared[2].split(", ")), text)
        if isinstance(obj, Class) and "__init__" not in obj.members and "dataclass" not in obj.labels:
            text = text.replace("\nArgs:\n", "\nAttributes:\n")
        obj.docstring.value = text.replace("\nExample:\n", "\nExamples:\n")


def link(obj: Object, name: str, short: bool) -> str:
    """Return the link to ``name`` as seen from ``obj``; plain code where the reference has no entry for it."""
    target = name if name.startswith("crac.") else resolved(obj, name)
    shown = name.rpartition(".")[2] if short else name
    return f'<autoref identifier="{target}" optional><code>{shown}</code></autoref>'


def resolved(obj: Object, name: str) -> str:
    """Return the full path of a name that is in scope."""
    try:
        return obj.resolve(name)
    except NameResolutionError:
        return name
