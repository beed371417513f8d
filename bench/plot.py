"""A line chart as SVG text, so that a benchmark needs no plotting library."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

WIDTH, HEIGHT = 420, 300
LEFT, RIGHT, TOP, BOTTOM = 52, 16, 34, 44
COLOURS = ("#2563eb", "#d97706", "#059669", "#9333ea", "#dc2626")
STEPS = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000)
TICKS = 6
"""Marks on an axis, at most."""


@dataclass(frozen=True, slots=True)
class Line:
    """A named series of points."""

    name: str
    points: Sequence[tuple[float, float]]
    dashed: bool = False


@dataclass(frozen=True, slots=True)
class Chart:
    """Lines over a common pair of axes. The y axis begins at 0."""

    title: str
    x_name: str
    lines: Sequence[Line]


def render(charts: Sequence[Chart]) -> str:
    """The charts side by side, as an SVG document."""
    body = "".join(
        f'<g transform="translate({index * WIDTH},0)">{_chart(chart)}</g>'
        for index, chart in enumerate(charts)
    )
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH * len(charts)}" height="{HEIGHT}"'
        ' font-family="sans-serif" font-size="11">'
        f'<rect width="100%" height="100%" fill="white"/>{body}</svg>\n'
    )


def _chart(chart: Chart) -> str:
    xs = [x for line in chart.lines for x, _ in line.points]
    ys = [y for line in chart.lines for _, y in line.points]
    x_from, x_to = min(xs), max(max(xs), min(xs) + 1)
    y_step = _step(max(ys))
    y_to = y_step * -(-max(ys) // y_step) or 1

    def place(x: float, y: float) -> str:
        across = LEFT + (x - x_from) / (x_to - x_from) * (WIDTH - LEFT - RIGHT)
        up = HEIGHT - BOTTOM - y / y_to * (HEIGHT - TOP - BOTTOM)
        return f"{across:.1f},{up:.1f}"

    parts = [_text(WIDTH / 2, 18, chart.title, "middle", "font-weight='bold'")]
    for tick in _ticks(0, y_to, y_step):
        left, right = place(x_from, tick), place(x_to, tick)
        parts.append(f'<path d="M{left} L{right}" stroke="#e5e7eb"/>')
        parts.append(_text(LEFT - 6, float(left.split(",")[1]) + 4, f"{tick:g}", "end"))
    parts += [
        _text(float(place(tick, 0).split(",")[0]), HEIGHT - 26, f"{tick:g}", "middle")
        for tick in _ticks(x_from, x_to, _step(x_to - x_from))
    ]
    parts.append(_text(WIDTH / 2, HEIGHT - 8, chart.x_name, "middle"))
    for index, line in enumerate(chart.lines):
        colour = COLOURS[index % len(COLOURS)]
        path = " L".join(place(x, y) for x, y in line.points)
        dash = ' stroke-dasharray="4 3"' if line.dashed else ""
        parts.append(f'<path d="M{path}" fill="none" stroke="{colour}" stroke-width="2"{dash}/>')
        if not line.dashed:
            for x, y in line.points:
                cx, cy = place(x, y).split(",")
                parts.append(f'<circle cx="{cx}" cy="{cy}" r="3" fill="{colour}"/>')
        parts.append(_text(LEFT + 8, TOP + 12 + 14 * index, line.name, "start", f"fill='{colour}'"))
    return "".join(parts)


def _step(span: float) -> float:
    return next((step for step in STEPS if span / step <= TICKS), STEPS[-1])


def _ticks(first: float, last: float, step: float) -> list[float]:
    start = -(-first // step) * step
    return [start + n * step for n in range(int((last - start) / step + 1e-9) + 1)]


def _text(x: float, y: float, text: str, anchor: str, more: str = "") -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" {more}>{escape(text)}</text>'
