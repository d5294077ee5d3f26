"""The two themes, dark and light: grey tones and one accent colour."""

from __future__ import annotations

from textual.theme import Theme

DARK = Theme(
    name="vlmtui-dark",
    primary="#6fb8a8",
    secondary="#8aa4c8",
    accent="#6fb8a8",
    success="#8fbf7f",
    warning="#d9b36c",
    error="#e0786f",
    foreground="#d5d9e0",
    background="#14171c",
    surface="#1a1e25",
    panel="#222731",
    dark=True,
    variables={
        "muted": "#8b93a1",
        "faint": "#565e6b",
        "border": "#3f4754",
        "border-blurred": "#2b313c",
        "block-cursor-background": "#2c3f40",
        "block-cursor-foreground": "#eef2f5",
        "block-cursor-text-style": "none",
        "block-cursor-blurred-background": "#2c3f40",
        "block-cursor-blurred-foreground": "#eef2f5",
        "footer-background": "#14171c",
        "footer-key-foreground": "#6fb8a8",
        "footer-description-foreground": "#8b93a1",
        "input-cursor-background": "#d5d9e0",
        "input-selection-background": "#6fb8a8 35%",
        "scrollbar": "#2f3641",
        "scrollbar-hover": "#3f4754",
        "scrollbar-active": "#6fb8a8",
        "scrollbar-background": "#14171c",
        "scrollbar-background-hover": "#14171c",
        "scrollbar-background-active": "#14171c",
        "scrollbar-corner-color": "#14171c",
    },
)

LIGHT = Theme(
    name="vlmtui-light",
    primary="#1f7a6b",
    secondary="#43628f",
    accent="#1f7a6b",
    success="#3f7a2f",
    warning="#8f6512",
    error="#b23a30",
    foreground="#272c34",
    background="#faf9f6",
    surface="#f2f0eb",
    panel="#e8e5de",
    dark=False,
    variables={
        "muted": "#6b6f76",
        "faint": "#a3a49f",
        "border": "#b9b4a8",
        "border-blurred": "#d8d4ca",
        "block-cursor-background": "#cfe3de",
        "block-cursor-foreground": "#14181d",
        "block-cursor-text-style": "none",
        "block-cursor-blurred-background": "#cfe3de",
        "block-cursor-blurred-foreground": "#14181d",
        "footer-background": "#faf9f6",
        "footer-key-foreground": "#1f7a6b",
        "footer-description-foreground": "#6b6f76",
        "input-cursor-background": "#272c34",
        "input-selection-background": "#1f7a6b 25%",
        "scrollbar": "#d3cfc5",
        "scrollbar-hover": "#b9b4a8",
        "scrollbar-active": "#1f7a6b",
        "scrollbar-background": "#faf9f6",
        "scrollbar-background-hover": "#faf9f6",
        "scrollbar-background-active": "#faf9f6",
        "scrollbar-corner-color": "#faf9f6",
    },
)

THEMES = (DARK, LIGHT)

VARIABLES = {"muted": "#868c96", "faint": "#6a707a"}
"""Colours that other themes lack: `$muted` for secondary text, `$faint` for inactive text."""


def theme_name(setting: str) -> str:
    """Return a theme's name for a setting: `dark`, `light`, or the name of any theme; empty: dark."""
    match setting:
        case "" | "dark":
            return DARK.name
        case "light":
            return LIGHT.name
        case _:
            return setting
