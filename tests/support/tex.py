"""A strict reader of the LaTeX that this package writes: it refuses what a compiler would."""

import re

_COMMANDS = {
    *("begin", "end", "centering", "caption", "label", "toprule", "midrule", "bottomrule"),
    *("addlinespace", "textbf", "le", "textbackslash", "textasciitilde", "textasciicircum"),
    *("textless", "textgreater", "textbar"),
}


def read_table(text):
    """Return the caption and the rows of cells of the only table; `addlinespace` is an empty row.

    Braces, environments and dollars are paired, each special character is escaped, each command is
    known, and each row has a cell for each column.
    """
    lines = [line for line in text.splitlines() if not line.startswith("%")]
    body = "\n".join(lines)
    plain = re.sub(r"\\([&%$#_{},]|\\)", "", body)
    assert set(re.findall(r"\\([A-Za-z]+)", plain)) <= _COMMANDS
    assert not re.search(r"\\[^A-Za-z]", plain)
    assert not set("%#_^~<>|") & set(plain.replace("\\", ""))
    assert plain.count("$") % 2 == 0
    depth = 0
    for character in plain:
        depth += {"{": 1, "}": -1}.get(character, 0)
        assert depth >= 0
    assert depth == 0
    opened = []
    for what, name in re.findall(r"\\(begin|end)\{(\w+)\}", body):
        if what == "begin":
            opened.append(name)
        else:
            assert opened.pop() == name
    assert opened == []
    (columns,) = re.findall(r"\\begin\{tabular\}\{([lrc]+)\}", body)
    rows = []
    for line in (line.strip() for line in lines):
        if line == r"\addlinespace":
            rows.append([])
        if line.endswith(r" \\"):
            assert not line.startswith(("[", "*"))
            cells = [cell.strip() for cell in re.split(r"(?<!\\)&", line[:-3])]
            assert len(cells) == len(columns)
            rows.append(cells)
    (caption,) = re.findall(r"\\caption\{(.*)\}$", body, re.MULTILINE)
    return caption, rows
