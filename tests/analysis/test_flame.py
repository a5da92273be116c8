"""Flame graphs: widths are times, names are escaped."""

from xml.etree import ElementTree

from rlzoo_plus.analysis.flame import flame_graph

SVG = "{http://www.w3.org/2000/svg}"


def _boxes(text):
    root = ElementTree.fromstring(text)
    return {
        group.find(f"{SVG}title").text.partition(":")[0]: group.find(f"{SVG}rect").attrib
        for group in root.iter(f"{SVG}g")
    }


def test_a_function_is_as_wide_as_its_time_and_below_its_caller():
    boxes = _boxes(flame_graph({("learn", "act"): 3.0, ("learn", "<lambda>"): 1.0}))
    assert list(boxes) == ["all", "learn", "<lambda>", "act"]
    widths = {name: float(box["width"]) for name, box in boxes.items()}
    assert widths["learn"] == widths["all"]
    assert widths["act"] == 3 * widths["<lambda>"] == 0.75 * widths["all"]
    tops = [float(boxes[name]["y"]) for name in ("all", "learn", "act")]
    assert tops == sorted(set(tops))
    assert float(boxes["act"]["x"]) == widths["<lambda>"]


def test_what_is_too_narrow_is_left_out_and_nothing_is_a_graph_too():
    assert list(_boxes(flame_graph({("learn",): 1.0, ("rare",): 1e-9}))) == ["all", "learn"]
    assert _boxes(flame_graph({})) == {}
