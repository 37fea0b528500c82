"""Draws docs/benchmarks.svg: bars of speed next to bars of memory."""

from xml.sax.saxutils import escape

SHOWN = ("crops-cold", "rows-limited", "crops-warm")
MIB = 1 << 20
MOST = 9  # bars per scenario
WIDTH, LEFT, BAR, GAP = 1000, 246, 270, 100
LINE, HEAD = 24, 62

STYLE = """
text{font-family:system-ui,-apple-system,"Segoe UI",Roboto,"Helvetica Neue",Arial,sans-serif;
font-size:13px;fill:#59636e}
.title{font-size:18px;font-weight:600;fill:#1f2328}
.name{font-size:15px;font-weight:600;fill:#1f2328}
.ours{font-weight:600;fill:#1f2328}
.right{text-anchor:end}
.paper{fill:#fff}
.floor{stroke:#8b949e;stroke-width:1}
.speed{fill:#8db8d8}.speed.mine{fill:#0072b2}
.memory{fill:#f2c57c}.memory.mine{fill:#d98200}
@media (prefers-color-scheme:dark){
text{fill:#9198a1}
.title,.name,.ours{fill:#f0f6fc}
.paper{fill:#0d1117}
.floor{stroke:#656d76}
.speed{fill:#2f5f80}.speed.mine{fill:#58b0e8}
.memory{fill:#7d5a1d}.memory.mine{fill:#f0b040}
}
"""


def _figure(number):
    for factor, unit in ((1e9, " G"), (1e6, " M"), (1e3, " k")):
        if number >= factor:
            return f"{number / factor:.3g}{unit}"
    return f"{number:.3g}"


def _size(number):
    mib = max(0, number) / MIB
    return f"{mib / 1024:.3g} GiB" if mib >= 1024 else f"{mib:.3g} MiB"


def _lines(result):
    """Evenkeel's rows, then the fastest others. Limits are left out."""
    rows = [
        (name.startswith("evenkeel"), row["title"], row["figures"])
        for name, row in result["rows"].items()
        if row["figures"] and name not in ("fio", "no_loader")
    ]
    rows.sort(key=lambda row: (not row[0], -row[2]["per_s"]))
    return rows[:MOST]


def _bar(x, y, share, kind, mine, text):
    length = max(1.0, share * BAR)
    own = " mine" if mine else ""
    return (
        f'<rect class="{kind}{own}" x="{x}" y="{y}" width="{length:.1f}" height="16" rx="2"/>'
        f'<text class="{"ours" if mine else ""}" x="{x + length + 6:.1f}" y="{y + 13}">'
        f"{escape(text)}</text>"
    )


def draw(scenarios):
    parts, y, said = [], 46, []
    second = LEFT + BAR + GAP
    for name, result in scenarios.items():
        rows = _lines(result)
        if not rows:
            continue
        parts.append(f'<text class="name" x="20" y="{y + 22}">{escape(result["title"])}</text>')
        about = f"{result['data']}"
        parts.append(f'<text class="right" x="{WIDTH - 20}" y="{y + 22}">{escape(about)}</text>')
        parts.append(f'<text x="{LEFT}" y="{y + 46}">{result["unit"]} per second</text>')
        parts.append(f'<text x="{second}" y="{y + 46}">memory growth, page cache included</text>')
        y += HEAD - 8
        fastest = max(row[2]["per_s"] for row in rows)
        heaviest = max(max(row[2]["growth"]["memory"] for row in rows), 1)
        for x in (LEFT, second):
            parts.append(
                f'<line class="floor" x1="{x}" x2="{x}" y1="{y}" y2="{y + LINE * len(rows)}"/>'
            )
        for mine, title, figures in rows:
            own = " ours" if mine else ""
            memory = figures["growth"]["memory"]
            parts.append(
                f'<text class="right{own}" x="{LEFT - 8}" y="{y + 17}">{escape(title)}</text>'
            )
            speed = figures["per_s"]
            parts.append(_bar(LEFT, y + 4, speed / fastest, "speed", mine, _figure(speed)))
            share = max(0, memory) / heaviest
            parts.append(_bar(second, y + 4, share, "memory", mine, _size(memory)))
            said.append(f"{name}, {title}: {_figure(speed)} per second, {_size(memory)}.")
            y += LINE
        y += 18
    title = "Evenkeel and other methods: speed and memory growth"
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{y + 6}" '
        f'viewBox="0 0 {WIDTH} {y + 6}" role="img">\n<title>{title}</title>\n'
        f"<desc>{escape(' '.join(said))}</desc>\n<style>{STYLE}</style>\n"
        f'<rect class="paper" width="{WIDTH}" height="{y + 6}"/>\n'
        f'<text class="title" x="20" y="32">{title}</text>\n'
    )
    return head + "\n".join(parts) + "\n</svg>\n"
