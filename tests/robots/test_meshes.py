"""Meshes are read whole, whatever objects their file has."""

import numpy as np
import pytest

from robots.engines.mujoco.meshes import read_mesh

OBJ = """
o first
v 0 0 0
v 1 0 0
v 1 1 0
v 0 1 0
f 1/1/1 2//2 3 4
o second
v 0 0 1
f -1 1 2
"""
STL = "solid x\nfacet normal 0 0 1\nouter loop\nvertex 0 0 0\nvertex 2 0 0\nvertex 0 2 0\n"


def test_all_objects_of_an_obj_are_read_and_squares_are_two_triangles(tmp_path):
    path = tmp_path / "two.obj"
    path.write_text(OBJ, encoding="utf-8")
    points, triangles = read_mesh(path)
    assert points.tolist()[-1] == [0.0, 0.0, 1.0]
    assert triangles.tolist() == [[0, 1, 2], [0, 2, 3], [4, 0, 1]]


def test_stl_of_text_and_of_bytes_are_the_same(tmp_path):
    text, binary = tmp_path / "text.stl", tmp_path / "binary.stl"
    text.write_text(STL, encoding="utf-8")
    corners = np.array([[0, 0, 1], [0, 0, 0], [2, 0, 0], [0, 2, 0]], "<f4")
    binary.write_bytes(bytes(80) + (1).to_bytes(4, "little") + corners.tobytes() + bytes(2))
    for one, other in zip(read_mesh(text), read_mesh(binary), strict=True):
        assert np.array_equal(one, other)


@pytest.mark.parametrize(
    "text", ["", "v 0 0 0\nf 1 2 3\n", "v a b c\nf 1 1 1\n", "v 0 0 0\nf 1 1 -9\n"]
)
def test_file_that_is_no_mesh_is_named(tmp_path, text):
    path = tmp_path / "broken.obj"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(ValueError, match=r"broken\.obj: "):
        read_mesh(path)
