"""What deltalake does of its own accord behind a commit."""

from __future__ import annotations

from typing import Final

from deltalake import PostCommitHookProperties

KEEP_LOG: Final = PostCommitHookProperties(create_checkpoint=True, cleanup_expired_logs=False)
"""For every commit of Tidemark's. By default one gives up the entries of the log that have expired, among them those of versions that
savepoints need; and it lists the whole log for that. ``delta_maintenance`` does it where it may."""
