"""One rule per file, one code per rule; a rule's docstring is the essence of the code's documentation page."""

from __future__ import annotations
