"""Settings of deltalake's hooks after a commit."""

from __future__ import annotations

from typing import Final

from deltalake import PostCommitHookProperties

KEEP_LOG: Final = PostCommitHookProperties(create_checkpoint=True, cleanup_expired_logs=False)
"""For every commit of Tidemark's. By default a commit deletes expired log entries, among them those of versions that savepoints need,
and lists the whole log for that. ``delta_maintenance`` deletes those that may be deleted."""
