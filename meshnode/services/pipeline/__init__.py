"""The driver's side of pipelines: whole generations over the holders of a model's layers."""

from __future__ import annotations

from meshnode.services.pipeline.service import Pipeline, PipelineLimits, serve_pipeline

__all__ = ["Pipeline", "PipelineLimits", "serve_pipeline"]
