"""Embodied agents that learn in context, and reward design for their tasks.

Importing the package needs NumPy alone; everything heavier is imported by the module that uses it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from embodied_icrl.evaluation.agent import load_agent

__version__ = "0.1.0"
__all__ = ["__version__", "load_agent"]


def __getattr__(name: str) -> Any:
    """Load `load_agent` on first use (PEP 562), so that importing the package stays light."""
    if name == "load_agent":
        from embodied_icrl.evaluation.agent import load_agent

        return load_agent
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
