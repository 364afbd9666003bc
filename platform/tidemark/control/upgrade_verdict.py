"""The old path of public names of ``tidemark.control``."""

from __future__ import annotations

from tidemark.moved import moved

__getattr__ = moved(__name__, to="tidemark.control")
