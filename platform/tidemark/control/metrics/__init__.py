"""Metrics for Prometheus and OpenTelemetry."""
