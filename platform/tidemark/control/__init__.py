"""The control plane of jobs that run on: spec, status, supervision."""
