"""Line charts as SVG text, so that a benchmark needs no plotting library."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

WIDTH, HEIGHT = 420, 320
LEFT, RIGHT, TOP, BOTTOM = 52, 16, 34, 64
MAX_PER_ROW = 3
"""Charts side by side."""
LETTER_WIDTH = 6.2
"""Mean width of a letter in the legend."""
COLOURS = ("#2563eb", "#d97706", "#059669", "#9333ea", "#dc2626")
STEPS = (
    0.01,
    0.02,
    0.05,
    0.1,
    0.2,
    0.5,
    1,
    2,
    5,
    10,
    20,
    50,
    100,
    200,
    500,
    1000,
    2000,
    5000,
    10_000,
)
MAX_TICKS = 6
"""Marks on an axis."""


@dataclass(frozen=True, slots=True)
class Line:
    """A named series of points."""

    name: str
    points: Sequence[tuple[float, float]]
    dashed: bool = False


@dataclass(frozen=True, slots=True)
class Chart:
    """Lines over a common pair of axes."""

    title: str
    x_name: str
    lines: Sequence[Line]
    y_from: float = 0.0
    """Start of the y axis: a multiple of its steps, below all points."""


def render(charts: Sequence[Chart]) -> str:
    """Return an SVG document with the charts in rows."""
    places = [
        (index % MAX_PER_ROW * WIDTH, index // MAX_PER_ROW * HEIGHT) for index in range(len(charts))
    ]
    body = "".join(
        f'<g transform="translate({x},{y})">{_chart(chart)}</g>'
        for (x, y), chart in zip(places, charts, strict=True)
    )
    width = WIDTH * min(MAX_PER_ROW, len(charts))
    height = HEIGHT * -(-len(charts) // MAX_PER_ROW)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}"'
        ' font-family="sans-serif" font-size="11">'
        f'<rect width="100%" height="100%" fill="white"/>{body}</svg>\n'
    )


def _chart(chart: Chart) -> str:
    xs = [x for line in chart.lines for x, _ in line.points]
    ys = [y for line in chart.lines for _, y in line.points]
    x_from, x_to = min(xs), max(max(xs), min(xs) + 1)
    y_from = chart.y_from
    y_step = _step(max(ys) - y_from)
    y_to = y_step * -(-max(ys) // y_step) or 1

    def place(x: float, y: float) -> str:
        across = LEFT + (x - x_from) / (x_to - x_from) * (WIDTH - LEFT - RIGHT)
        up = HEIGHT - BOTTOM - (y - y_from) / (y_to - y_from) * (HEIGHT - TOP - BOTTOM)
        return f"{across:.1f},{up:.1f}"

    parts = [_text(WIDTH / 2, 18, chart.title, "middle", "font-weight='bold'")]
    for tick in _ticks(y_from, y_to, y_step):
        left, right = place(x_from, tick), place(x_to, tick)
        parts.append(f'<path d="M{left} L{right}" stroke="#e5e7eb"/>')
        parts.append(_text(LEFT - 6, float(left.split(",")[1]) + 4, f"{tick:g}", "end"))
    parts += [
        _text(float(place(tick, y_from).split(",")[0]), HEIGHT - BOTTOM + 18, f"{tick:g}", "middle")
        for tick in _ticks(x_from, x_to, _step(x_to - x_from))
    ]
    parts.append(_text(WIDTH / 2, HEIGHT - BOTTOM + 36, chart.x_name, "middle"))
    legend = float(LEFT)
    for index, line in enumerate(chart.lines):
        colour = COLOURS[index % len(COLOURS)]
        path = " L".join(place(x, y) for x, y in line.points)
        dash = ' stroke-dasharray="4 3"' if line.dashed else ""
        parts.append(f'<path d="M{path}" fill="none" stroke="{colour}" stroke-width="2"{dash}/>')
        if not line.dashed:
            for x, y in line.points:
                cx, cy = place(x, y).split(",")
                parts.append(f'<circle cx="{cx}" cy="{cy}" r="3" fill="{colour}"/>')
        parts.append(_text(legend, HEIGHT - 8, line.name, "start", f"fill='{colour}'"))
        legend += LETTER_WIDTH * (len(line.name) + 2)
    return "".join(parts)


def _step(span: float) -> float:
    return next((step for step in STEPS if span / step <= MAX_TICKS), STEPS[-1])


def _ticks(first: float, last: float, step: float) -> list[float]:
    start = -(-first // step) * step
    return [start + n * step for n in range(int((last - start) / step + 1e-9) + 1)]


def _text(x: float, y: float, text: str, anchor: str, more: str = "") -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" {more}>{escape(text)}</text>'
