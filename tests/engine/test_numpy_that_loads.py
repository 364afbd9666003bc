"""Arguments are passed to the JVM while another thread loads NumPy."""

from __future__ import annotations

import sys
from types import ModuleType

import numpy as np
import pytest
from py4j import protocol

from tidemark.spark.env.java_classes import recognize_numpy_without_pandas


def _taken(given: object) -> list[str]:
    return [
        type(converter).__name__
        for converter in protocol.INPUT_CONVERTER
        if "Numpy" in type(converter).__name__ and converter.can_convert(given)
    ]


def test_arguments_pass_while_numpy_is_half_loaded(monkeypatch: pytest.MonkeyPatch) -> None:
    recognize_numpy_without_pandas()
    assert _taken(np.int64(1)) == ["NumpyScalarConverter"]
    assert _taken(np.ones(2)) == ["NumpyArrayConverter"]
    assert _taken(np.ones((2, 2))) == []
    monkeypatch.setitem(sys.modules, "numpy", ModuleType("numpy"))
    assert _taken("spark.sql.shuffle.partitions") == []
