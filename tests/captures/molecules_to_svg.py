"""Takes drawn molecules out of a page of `grpo report`: python3 molecules_to_svg.py report.html > molecules.svg

Two rows: molecules before the training, and those at the same ranks of the reward after it. The drawings are the page's own.
"""

import re
import sys
from html import escape, unescape

WIDTH, HEIGHT, GAP, TOP, LEFT = 176, 168, 10, 34, 14


def cards(page, title):
    """The drawings under a heading that begins so, each with its scores."""
    heading = re.search(rf"<h2>({title}[^<]*)</h2>(.*?)</div>\s*(?=<h2|</div>)", page, re.S)
    found = []
    for article in re.findall(r"<article>(.*?)</article>", heading[2], re.S):
        drawing = re.search(r"<svg.*?</svg>", article, re.S)
        score = re.search(r'<p class="score">(.*?)</p>', article, re.S)
        words = re.sub(r"\s+", " ", unescape(re.sub("<[^>]*>", " ", score[1]))).strip()
        found.append((drawing and drawing[0], words))
    return unescape(heading[1]), found


def card(x, y, drawing, words):
    reward, _, rest = words.partition(" ")
    rest = re.sub(r" (?=[A-Za-z])", " · ", rest.replace("qed", "QED").replace("sa ", "SA "))
    yield f'<rect x="{x}" y="{y}" width="{WIDTH}" height="{HEIGHT}" rx="6" fill="#f5f6f8"/>'
    if drawing:
        place = f'x="{x + 8}" y="{y + 6}" width="{WIDTH - 16}" height="{HEIGHT - 44}"'
        yield re.sub(r'width="[^"]*" height="[^"]*"', place, drawing, count=1)
    else:
        yield f'<text x="{x + WIDTH / 2}" y="{y + HEIGHT / 2 - 12}" text-anchor="middle" fill="#57616b">not a molecule</text>'
    yield f'<text x="{x + 10}" y="{y + HEIGHT - 12}"><tspan font-weight="700">{escape(reward)}</tspan><tspan fill="#57616b" dx="8">{escape(rest)}</tspan></text>'


def main():
    page = open(sys.argv[1], encoding="utf-8").read()
    rows = [cards(page, "Molecules before"), cards(page, "Molecules after"), cards(page, "Best molecules")]
    columns = max(len(found) for _, found in rows[:2])
    width = 2 * LEFT + columns * (WIDTH + GAP) - GAP
    height = len(rows) * (HEIGHT + TOP + 6) + 8
    print(
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}"'
        ' font-family="system-ui, sans-serif" font-size="12" fill="#1b1f24" color="#1b1f24">'
    )
    print(f'<rect width="{width}" height="{height}" rx="8" fill="#ffffff"/>')
    for number, (title, found) in enumerate(rows):
        top = number * (HEIGHT + TOP + 6) + TOP
        print(f'<text x="{LEFT}" y="{top - 10}" font-size="15" font-weight="700">{escape(title)}</text>')
        for column, (drawing, words) in enumerate(found[:columns]):
            print("".join(card(LEFT + column * (WIDTH + GAP), top, drawing, words)))
    print("</svg>")


main()
