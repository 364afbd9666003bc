"""Exports the metrics through OpenTelemetry (the extra ``otel``): by OTLP over HTTP, or to the user's own meter provider.

OpenTelemetry's own variables configure it, such as ``OTEL_EXPORTER_OTLP_ENDPOINT`` and ``OTEL_METRIC_EXPORT_INTERVAL``.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tidemark.control.metrics.metric_registry import ALL_METRICS, numbers_of
from tidemark.control.metrics.metric_server import SnapshotSource
from tidemark.control.metrics.metric_types import MetricInfo
from tidemark.errors import SetupError, TidemarkError

if TYPE_CHECKING:
    from opentelemetry.metrics import CallbackOptions, Meter, MeterProvider, Observation

_LOG = logging.getLogger("tidemark.metrics")
_UNITS: Mapping[str, str] = {"seconds": "s", "bytes": "By", "ratio": "1", "rows": "{row}", "files": "{file}", "": "1"}
_SAID_BY_UNIT = frozenset(("seconds", "bytes", "ratio"))


@dataclass(frozen=True)
class OtelExport:
    """A running export; ``close`` sends the current metrics once more and ends it."""

    close: Callable[[], None]


def export_metrics(source: SnapshotSource, *, provider: MeterProvider | None = None) -> OtelExport:
    """Export metrics periodically, from a thread of OpenTelemetry.

    Args:
        source: the metrics to export.
        provider: the meter provider; by default one that sends by OTLP over HTTP.

    Raises:
        SetupError: the packages of the extra ``otel`` are not installed.
    """
    try:
        from opentelemetry.metrics import Observation
        from opentelemetry.sdk.metrics import MeterProvider as SdkProvider
        from opentelemetry.sdk.metrics.export import PeriodicExportingMetricReader
    except ImportError as error:
        raise _missing() from error
    if provider is not None:
        _register(provider.get_meter("tidemark"), source, Observation)
        return OtelExport(lambda: None)
    try:
        from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
    except ImportError as error:
        raise _missing() from error
    own = SdkProvider([PeriodicExportingMetricReader(OTLPMetricExporter())])
    _register(own.get_meter("tidemark"), source, Observation)
    return OtelExport(own.shutdown)


def otel_name(info: MetricInfo) -> str:
    """Return a metric's name in OpenTelemetry, which has units apart from names.

    >>> otel_name(MetricInfo("watermark_lag", "seconds", "gauge", (), "", "Time"))
    'tidemark.watermark_lag'
    """
    return f"tidemark.{info.stem}" + (f".{info.unit}" if info.unit and info.unit not in _SAID_BY_UNIT else "")


def _register(meter: Meter, source: SnapshotSource, observation: type[Observation]) -> None:
    for info in ALL_METRICS:
        make = meter.create_observable_counter if info.kind == "counter" else meter.create_observable_gauge
        make(otel_name(info), callbacks=[_callback(info, source, observation)], unit=_UNITS[info.unit], description=info.text)


def _callback(
    info: MetricInfo, source: SnapshotSource, observation: type[Observation]
) -> Callable[[CallbackOptions], Iterable[Observation]]:
    def observe(_: CallbackOptions) -> Iterable[Observation]:
        try:
            snapshot = source.read()
        except TidemarkError as error:
            _LOG.warning("%s cannot be read: %s", info.name, error)
            return []
        return [observation(value, dict(zip(info.labels, labels, strict=True))) for labels, value in numbers_of(info, snapshot)]

    return observe


def _missing() -> SetupError:
    return SetupError("OpenTelemetry is not installed", fix="run pip install -e '.[otel]' in the checkout")
