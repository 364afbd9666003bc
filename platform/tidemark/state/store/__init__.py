"""The job store: paths, object stores, checksummed documents."""

from __future__ import annotations

from tidemark.moved import moved

__getattr__ = moved(__name__, to="tidemark.state")
