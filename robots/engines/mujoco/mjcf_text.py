"""Reads the text of an MJCF, which need not be trusted: what it includes, and what is refused."""

from collections.abc import Iterator
from pathlib import Path
from typing import NoReturn
from xml.etree.ElementTree import Element, SubElement, TreeBuilder
from xml.parsers import expat

LARGEST_TEXT, LARGEST_MESH = 2**24, 2**28
"""Most bytes of all texts together, and of a mesh."""
MOST_ELEMENTS, DEEPEST = 50_000, 150
"""Most elements, and how deep they may be in each other: MuJoCo's reader calls itself for each."""
_MESHES = (".stl", ".obj", ".msh")
# Sections that are read; of these the last are of no meaning for one robot in another world.
_READ = ("compiler", "default", "asset", "worldbody", "tendon", "equality", "actuator", "keyframe")
_PASSED_OVER = (
    *("contact", "custom", "option", "sensor", "size", "statistic", "visual"),
    *("include", "mujoco", "mujocoinclude"),
)
_OF_ASSETS, _IMAGES = ("mesh", "material"), ("texture", "hfield", "skin")
# What runs code, reads further files, or makes many bodies of one.
_REFUSED = {
    "extension": "loads libraries, which is code",
    "plugin": "loads libraries, which is code",
    "attach": "takes bodies from other models",
    "model": "takes bodies from other models",
    "replicate": "makes many bodies of one",
    "composite": "makes many bodies of one",
    "flexcomp": "makes many bodies of one",
    "deformable": "is soft, and links are rigid",
    "flex": "is soft, and links are rigid",
}
_UNHEEDED = ("gravity", "wind", "density", "viscosity", "settotalmass")
# Whole paths are written instead; and bodies and geoms must stay as they are.
_UNUSED = ("assetdir", "meshdir", "texturedir", "strippath", "fusestatic", "discardvisual")


class MjcfText:
    """The elements of an MJCF with what it includes, ready for MuJoCo.

    Attributes:
        root: Its root. Bodies and joints have names, meshes whole paths; images are left out.
        has_world: Whether the world itself had shapes, which are left out.
        has_images: Whether it had textures or the like.
        unheeded: Attributes that say what holds here otherwise, such as gravity.
    """

    def __init__(self, path: Path) -> None:
        """Read a file.

        Raises:
            ValueError: It is no MJCF, or one with something that is refused.
        """
        self.path, self.folder = path, path.resolve().parent
        self._bytes = self._elements = 0
        self._files: set[Path] = set()
        self.root = self._parsed(path.resolve())
        if self.root.tag != "mujoco":
            self.refuse(f"begins with <{self.root.tag[:40]}>, not <mujoco>", "Name an MJCF")
        self._include(self.root)
        self.has_world = self.has_images = False
        told = {key for one in self.root.iter("option") for key in one.attrib}
        told |= {key for one in self.root.findall("compiler") for key in one.attrib}
        self.unheeded = tuple(name for name in _UNHEEDED if name in told)
        self._check()
        self._place_meshes()
        self._strip()
        self._name("body")
        self._name("joint", "freejoint")

    def refuse(self, problem: str, fix: str) -> NoReturn:
        """Raise a ValueError in one line."""
        raise ValueError(f"{self.path}: it {problem}. {fix}.")

    def worlds(self) -> Iterator[Element]:
        """Yield the bodies of the world; there may be several, which are one."""
        yield from self.root.findall("worldbody")

    def _parsed(self, path: Path) -> Element:
        if path in self._files:
            self.refuse(f"includes {path.name[:80]!r} twice", "Include a file once")
        self._files.add(path)
        try:
            size = path.stat().st_size
            self._bytes += size
            if self._bytes > LARGEST_TEXT:
                limit = f"more than {LARGEST_TEXT:,} bytes of text"
                self.refuse(f"has {limit}", "Give the model of one robot")
            data = path.read_bytes()
        except OSError as error:
            self.refuse(f"cannot be read ({error.strerror}: {path.name[:80]})", "Mend the path")
        builder, parser, depth = TreeBuilder(), expat.ParserCreate(), 0

        def start(tag: str, attributes: dict[str, str]) -> None:
            nonlocal depth
            depth += 1
            self._elements += 1
            if depth > DEEPEST or self._elements > MOST_ELEMENTS:
                most = f"more than {MOST_ELEMENTS:,} elements, or {DEEPEST} in each other"
                self.refuse(f"has {most}", "Give the model of one robot")
            builder.start(tag, attributes)

        def end(tag: str) -> None:
            nonlocal depth
            depth -= 1
            builder.end(tag)

        def doctype(*_: object) -> None:
            self.refuse("has a <!DOCTYPE>, which can expand without end", "Take it out")

        parser.StartElementHandler, parser.EndElementHandler = start, end
        parser.StartDoctypeDeclHandler = doctype
        try:
            parser.Parse(data, True)
            return builder.close()
        except expat.ExpatError as error:
            self.refuse(f"is not XML ({error})", "Fix the file")

    def _include(self, element: Element) -> None:
        """Put the elements of included files in the place of each <include>."""
        for index, child in reversed(list(enumerate(element))):
            if child.tag == "include":
                file = self._inside(self.folder / child.get("file", ""), "include")
                included = self._parsed(file)
                if included.tag not in ("mujoco", "mujocoinclude"):
                    self.refuse(f"includes {file.name[:80]!r}, which is no MJCF", "Leave it out")
                element[index : index + 1] = list(included)
                # What was included may include further.
                self._include(element)
                return
            self._include(child)

    def _inside(self, path: Path, what: str) -> Path:
        """Return the whole path of a file, which must be in the folder of the MJCF."""
        found = path.resolve()
        if not found.is_relative_to(self.folder):
            outside = f"{what} {str(path)[-80:]!r} outside of its folder"
            self.refuse(f"names the {outside}", "Put all its files into one folder")
        if not found.is_file():
            missing = str(found.relative_to(self.folder))[-80:]
            self.refuse(f"names the {what} {missing!r}, which is not there", "Add it")
        return found

    def _check(self) -> None:
        for element in self.root.iter():
            if element.tag in _REFUSED or "plugin" in element.attrib:
                tag = element.tag if element.tag in _REFUSED else "plugin"
                self.refuse(f"has <{tag}>, which {_REFUSED[tag]}", "Take it out")
        for section in self.root:
            if section.tag not in (*_READ, *_PASSED_OVER):
                self.refuse(f"has <{section.tag[:40]}>, which no MJCF has", "Take it out")
        for world in self.worlds():
            for body in world.iter("body"):
                if body.get("mocap") == "true":
                    name = body.get("name", "")[:60]
                    self.refuse(
                        f"has the body {name!r}, which is moved by hand (mocap)", "Take it out"
                    )

    def _place_meshes(self) -> None:
        """Write whole paths in the place of those that a compiler's folders complete."""
        compilers = self.root.findall("compiler")
        told = {key: value for one in compilers for key, value in one.items()}
        inner = told.get("meshdir", told.get("assetdir", ""))
        for compiler in compilers:
            for attribute in _UNUSED:
                compiler.attrib.pop(attribute, None)
        for mesh in self.root.iter("mesh"):
            if mesh.get("builtin", "none") != "none":
                self.refuse("has a mesh with builtin=..., which is computed", "Take it out")
            if (name := mesh.get("file")) is None:
                continue
            name = Path(name).name if told.get("strippath") == "true" else name
            file = self._inside(self.folder / inner / name, "mesh")
            if file.suffix.lower() not in _MESHES:
                self.refuse(f"has the mesh {name[-80:]!r}", f"Use one of {', '.join(_MESHES)}")
            if file.stat().st_size > LARGEST_MESH:
                limit = f"of more than {LARGEST_MESH:,} bytes"
                self.refuse(f"has the mesh {name[-80:]!r} {limit}", "Simplify it")
            mesh.attrib.pop("content_type", None)
            mesh.set("file", str(file))

    def _strip(self) -> None:
        """Take out what a robot in another world does not need."""
        for section in list(self.root):
            if section.tag not in _READ:
                self.root.remove(section)
        for asset in self.root.findall("asset"):
            for one in list(asset):
                if one.tag not in _OF_ASSETS:
                    self.has_images |= one.tag in _IMAGES
                    asset.remove(one)
        for material in self.root.iter("material"):
            material.attrib.pop("texture", None)
            for layer in list(material):
                material.remove(layer)
        for world in self.worlds():
            self._empty(world)
        if self.root.find("compiler") is None:
            SubElement(self.root, "compiler")

    def _empty(self, place: Element) -> None:
        for one in list(place):
            if one.tag == "geom":
                self.has_world = True
                place.remove(one)
            elif one.tag == "frame":
                self._empty(one)

    def _name(self, *tags: str) -> None:
        """Give names to what has none."""
        elements = [one for world in self.worlds() for one in world.iter() if one.tag in tags]
        used = {one.get("name") for one in elements}
        free = (f"{tags[0]}{number}" for number in range(len(elements) + len(used)))
        for one in elements:
            if not one.get("name"):
                one.set("name", next(name for name in free if name not in used))
