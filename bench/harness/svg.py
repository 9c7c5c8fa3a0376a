"""Draws bar charts as SVG. The same figures always give the same bytes."""

from html import escape

WIDTH, LEFT, RIGHT = 760, 190, 120
BAR, GAP, HEAD, AFTER = 15, 4, 24, 12
STYLE = (
    "text{font:12px system-ui,sans-serif;fill:#1f2328}.t{font-size:14px;font-weight:600}.g{font-weight:600}.n{fill:#59636e}"
    ".b{fill:#afb8c1}.w{fill:#0a7f6f}.f{fill:#d8dee4}"
    "@media(prefers-color-scheme:dark){text{fill:#f0f6fc}.n{fill:#9198a1}.b{fill:#656c76}.w{fill:#2dba9f}.f{fill:#3d444d}}"
)


def bars(title, unit, groups, *, one_scale=True):
    """A chart of horizontal bars. `groups` are (label, [(name, value, kind)]), kind being `w` (Weir), `b` (others) or
    `f` (a floor). With `one_scale` all groups share a scale, otherwise each has its own."""
    groups = [(label, rows) for label, rows in groups if rows]
    most = max((value for _, rows in groups for _, value, _ in rows), default=1)
    out, y = [f'<text class="t" x="0" y="16">{escape(title)}</text><text class="n" x="0" y="34">{escape(unit)}</text>'], 46
    for label, rows in groups:
        out.append(f'<text class="g" x="0" y="{y + 14}">{escape(label)}</text>')
        y += HEAD
        scale = (WIDTH - LEFT - RIGHT) / (most if one_scale else max(value for _, value, _ in rows))
        for name, value, kind in rows:
            width = max(1, round(value * scale, 1))
            out.append(
                f'<text x="{LEFT - 8}" y="{y + 12}" text-anchor="end">{escape(name)}</text>'
                f'<rect class="{kind}" x="{LEFT}" y="{y}" width="{width:g}" height="{BAR}"/>'
                f'<text class="n" x="{LEFT + width + 6:g}" y="{y + 12}">{number(value)}</text>'
            )
            y += BAR + GAP
        y += AFTER
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {y}" width="{WIDTH}" height="{y}" role="img" aria-label="{escape(title)}">'
    return "\n".join([head, f"<style>{STYLE}</style>", *out, "</svg>"]) + "\n"


def number(value):
    """Three digits, with separators from a thousand on."""
    return f"{value:,.0f}" if value >= 100 else f"{value:.1f}" if value >= 10 else f"{value:.3g}"
