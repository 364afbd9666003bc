"""The page of jobs and the REST API behind it: ``tidemark ui``, and ``tidemark supervise --ui``.

Its public names are those of ``__init__.pyi``; each is loaded at first use.
"""

from __future__ import annotations

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
