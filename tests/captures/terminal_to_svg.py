"""Turns a tmux screen into an SVG picture: tmux capture-pane -e -p -t NAME | python3 terminal_to_svg.py COLUMNS ROWS > live.svg

Text stays text. Braille dots, blocks and lines are drawn, since fonts disagree about them.
"""

import re
import sys
from html import escape

CELL, LINE, MARGIN = 8.4, 18.0, 14.0
INK, PAGE = "#d7dce2", "#14171b"
# The sixteen colours of a terminal, dark ones first.
COLORS = (
    "#3b424a #e06c75 #4cc38a #d8b64c #4f8fe6 #c678dd #4fb3cf #c4cad1"
    " #7d8792 #f07c70 #6fd8a4 #efd06a #6fb0ff #d89aea #7fd0e4 #ffffff"
).split()


def color_of_256(number):
    if number < 16:
        return COLORS[number]
    if number < 232:
        levels = [0, 95, 135, 175, 215, 255]
        number -= 16
        return "#%02x%02x%02x" % tuple(levels[number // 6**i % 6] for i in (2, 1, 0))
    return "#" + "%02x" % (8 + 10 * (number - 232)) * 3


def styled(style, codes):
    """The style after an SGR sequence, as (colour, bold, dim)."""
    color, bold, dim = style
    codes = [int(code or 0) for code in codes.split(";")]
    while codes:
        code = codes.pop(0)
        if code == 0:
            color, bold, dim = INK, False, False
        elif code == 1:
            bold = True
        elif code == 2:
            dim = True
        elif code == 22:
            bold = dim = False
        elif code == 39:
            color = INK
        elif 30 <= code <= 37:
            color = COLORS[code - 30]
        elif 90 <= code <= 97:
            color = COLORS[code - 82]
        elif code == 38 and codes[:1] == [5]:
            color = color_of_256(codes[1])
            codes = codes[2:]
        elif code == 38 and codes[:1] == [2]:
            color = "#%02x%02x%02x" % tuple(codes[1:4])
            codes = codes[4:]
    return color, bold, dim


def cells(line, style):
    """(column, character, style) of a line, and the style behind it."""
    found, column = [], 0
    for part in re.split(r"(\x1b\[[0-9;]*m)", line):
        sequence = re.fullmatch(r"\x1b\[([0-9;]*)m", part)
        if sequence:
            style = styled(style, sequence[1])
            continue
        for character in part:
            found.append((column, character, style))
            column += 1
    return found, style


def is_drawn(character):
    return "\u2801" <= character <= "\u28ff" or character in "▄━─│■"


def dots(column, row, character):
    """The raised dots of a Braille character, as short strokes of a path."""
    order = [(0, 0), (0, 1), (0, 2), (1, 0), (1, 1), (1, 2), (0, 3), (1, 3)]
    for bit, (x, y) in enumerate(order):
        if ord(character) - 0x2800 >> bit & 1:
            yield f"M{MARGIN + (column + 0.25 + 0.5 * x) * CELL:.1f} {MARGIN + (row + 0.125 + 0.25 * y) * LINE:.1f}h0"


def box(column, row, character):
    """A block or a line, as a closed path."""
    x, y = MARGIN + column * CELL, MARGIN + row * LINE
    top, height, left, width = {
        "▄": (0.5, 0.4, 0, 1),
        "━": (0.44, 0.16, 0, 1),
        "─": (0.48, 0.06, 0, 1),
        "│": (0, 1, 0.46, 0.1),
        "■": (0.3, 0.42, 0.05, 0.9),
    }[character]
    return f"M{x + left * CELL:.1f} {y + top * LINE:.1f}h{width * CELL:.1f}v{height * LINE:.1f}h{-width * CELL:.1f}z"


def runs(row):
    """Neighbouring characters of one style, as (column, text, style); blanks at both ends are left out."""
    found = []
    for column, character, style in row:
        character = " " if is_drawn(character) else character
        if found and found[-1][2] == style and found[-1][0] + len(found[-1][1]) == column:
            found[-1][1] += character
        else:
            found.append([column, character, style])
    for column, text, style in found:
        # Two spaces or more end a run: columns stay where they are in every font.
        for word in re.finditer(r"\S+(?: \S+)*", text):
            yield column + word.start(), word[0], style


def main():
    columns, rows = int(sys.argv[1]), int(sys.argv[2])
    style = (INK, False, False)
    text, strokes, areas = [], {}, {}
    for number, line in enumerate(sys.stdin.read().split("\n")[:rows]):
        row, style = cells(line, style)
        for column, character, (color, _, _) in row:
            if "\u2801" <= character <= "\u28ff":
                strokes.setdefault(color, []).extend(dots(column, number, character))
            elif is_drawn(character):
                areas.setdefault(color, []).append(box(column, number, character))
        for column, words, (color, bold, dim) in runs(row):
            extra = ' font-weight="700"' if bold else ""
            extra += ' opacity=".65"' if dim else ""
            text.append(
                f'<text x="{MARGIN + column * CELL:.1f}" y="{MARGIN + (number + 0.72) * LINE:.1f}" fill="{color}"{extra}'
                f' textLength="{len(words) * CELL:.1f}" lengthAdjust="spacingAndGlyphs">{escape(words)}</text>'
            )
    width, height = 2 * MARGIN + columns * CELL, 2 * MARGIN + rows * LINE
    print(
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:.0f} {height:.0f}" width="{width:.0f}" height="{height:.0f}"'
        ' font-family="ui-monospace, \'DejaVu Sans Mono\', Menlo, Consolas, monospace" font-size="13.5">'
    )
    print(f'<rect width="100%" height="100%" rx="8" fill="{PAGE}"/>')
    for color, paths in areas.items():
        print(f'<path fill="{color}" d="{"".join(paths)}"/>')
    for color, paths in strokes.items():
        print(f'<path stroke="{color}" stroke-width="2.6" stroke-linecap="round" fill="none" d="{"".join(paths)}"/>')
    print("\n".join(text))
    print("</svg>")


main()
