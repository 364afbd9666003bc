"""The old path of public names of ``tidemark.spark``."""

from __future__ import annotations

from tidemark.moved import moved

__getattr__ = moved(__name__, to="tidemark.spark")
