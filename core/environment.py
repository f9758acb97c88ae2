"""What processes of the core get of this one's environment; telemetry, below, needs it too."""

from __future__ import annotations

from ..telemetry.environment import is_secret, without_secrets

__all__ = ["is_secret", "without_secrets"]
