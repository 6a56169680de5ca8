"""Binary glTF 2.0 (GLB): flat-shaded triangles in PBR base colours, written and read with NumPy.

Only what models and stages need: indexed triangles, one mesh and one node per model. Colours in
memory are sRGB floats in [0, 1]; glTF stores base colours in linear light.
"""

from __future__ import annotations

import json
import struct
from dataclasses import dataclass
from typing import Any, Mapping, Optional, Sequence, Tuple

import numpy as np

JSON_CHUNK, BIN_CHUNK = 0x4E4F534A, 0x004E4942
FLOAT, ARRAY, ELEMENTS = 5126, 34962, 34963
INDEX_TYPES = {5121: "u1", 5123: "<u2", 5125: "<u4"}
Colour = Tuple[float, float, float]


@dataclass(frozen=True)
class Surface:
    """Triangles of one material: float32 `[triangle, 3 (corner), 3 (xyz)]`, metres."""

    name: str
    colour: Colour
    triangles: np.ndarray

    @property
    def normals(self) -> np.ndarray:
        """Unit normals of the triangles, float64 `[triangle, 3]`; zero where degenerate."""
        a, b, c = np.moveaxis(self.triangles.astype(np.float64), 1, 0)
        normal = np.cross(b - a, c - a)
        length = np.linalg.norm(normal, axis=1, keepdims=True)
        return normal / np.where(length > 0, length, 1.0)


def srgb_to_linear(colour: Sequence[float]) -> list[float]:
    """Display values in [0, 1] as linear light."""
    c = np.asarray(colour, dtype=np.float64)
    return [float(x) for x in np.where(c <= 0.04045, c / 12.92, ((c + 0.055) / 1.055) ** 2.4)]


def linear_to_srgb(colour: Sequence[float]) -> list[float]:
    """Linear light as display values in [0, 1]."""
    c = np.asarray(colour, dtype=np.float64)
    return [float(x) for x in np.where(c <= 0.0031308, c * 12.92, 1.055 * c ** (1 / 2.4) - 0.055)]


def glb_bytes(
    surfaces: Sequence[Surface], name: str, *, linear: bool = True, vertex_colours: bool = False
) -> bytes:
    """A GLB file with one node; corners are not shared, so every viewer shades it flat.

    Args:
        surfaces: one primitive and one material each.
        name: of the mesh and its node.
        linear: convert colours to linear light, as glTF says. Habitat's flat shader shows base
            colours as they are: write those files without.
        vertex_colours: also write the colours as COLOR_0 bytes (semantic meshes).
    """
    writer = _Writer()
    primitives: list[dict[str, Any]] = []
    materials: list[dict[str, Any]] = []
    for surface in surfaces:
        corners = surface.triangles.reshape(-1, 3).astype("<f4")
        normals = np.repeat(surface.normals, 3, axis=0).astype("<f4")
        attributes = {
            "POSITION": writer.vectors(corners, bounds=True),
            "NORMAL": writer.vectors(normals),
        }
        if vertex_colours:
            attributes["COLOR_0"] = writer.colours(surface.colour, len(corners))
        primitives.append(
            {
                "attributes": attributes,
                "indices": writer.indices(len(corners)),
                "material": len(materials),
                "mode": 4,
            }
        )
        shown = srgb_to_linear(surface.colour) if linear else list(surface.colour)
        pbr = {
            "baseColorFactor": [round(x, 6) for x in shown] + [1.0],
            "metallicFactor": 0.0,
            "roughnessFactor": 0.9,
        }
        materials.append({"name": surface.name, "pbrMetallicRoughness": pbr})
    document = {
        "asset": {"version": "2.0", "generator": "embodied-icrl"},
        "scene": 0,
        "scenes": [{"nodes": [0]}],
        "nodes": [{"name": name, "mesh": 0}],
        "meshes": [{"name": name, "primitives": primitives}],
        "materials": materials,
        "accessors": writer.accessors,
        "bufferViews": writer.views,
        "buffers": [{"byteLength": len(writer.data)}],
    }
    return _container(document, bytes(writer.data))


class _Writer:
    """Accumulates the binary chunk with its views and accessors."""

    def __init__(self) -> None:
        self.data = bytearray()
        self.views: list[dict[str, Any]] = []
        self.accessors: list[dict[str, Any]] = []

    def vectors(self, values: np.ndarray, bounds: bool = False) -> int:
        accessor = {"componentType": FLOAT, "count": len(values), "type": "VEC3"}
        if bounds:
            accessor["min"] = [float(x) for x in values.min(axis=0)]
            accessor["max"] = [float(x) for x in values.max(axis=0)]
        return self._add(values, ARRAY, accessor)

    def colours(self, colour: Colour, count: int) -> int:
        row = np.array([[*(round(255 * x) for x in colour), 255]], dtype=np.uint8)
        accessor = {"componentType": 5121, "normalized": True, "count": count, "type": "VEC4"}
        return self._add(np.repeat(row, count, axis=0), ARRAY, accessor)

    def indices(self, count: int) -> int:
        code, dtype = (5123, "<u2") if count < 65535 else (5125, "<u4")
        accessor = {"componentType": code, "count": count, "type": "SCALAR"}
        return self._add(np.arange(count, dtype=dtype), ELEMENTS, accessor)

    def _add(self, values: np.ndarray, target: int, accessor: dict[str, Any]) -> int:
        raw = values.tobytes()
        view = {"buffer": 0, "byteOffset": len(self.data), "byteLength": len(raw), "target": target}
        self.views.append(view)
        self.data += raw + b"\0" * (-len(raw) % 4)
        self.accessors.append({"bufferView": len(self.views) - 1, **accessor})
        return len(self.accessors) - 1


def _container(document: Mapping[str, Any], data: bytes) -> bytes:
    text = json.dumps(document, separators=(",", ":")).encode("utf-8")
    text += b" " * (-len(text) % 4)
    chunks = struct.pack("<II", len(text), JSON_CHUNK) + text
    chunks += struct.pack("<II", len(data), BIN_CHUNK) + data
    return struct.pack("<4sII", b"glTF", 2, 12 + len(chunks)) + chunks


def read_glb(data: bytes) -> list[Surface]:
    """The triangles of a GLB file by material, node transforms applied.

    Raises:
        ValueError: not a GLB, or it uses what is not supported here: compressed or sparse data,
            external buffers, other modes than triangles. Of a textured material only the base
            colour counts.
    """
    document, chunk = _split(data)
    surfaces: list[Surface] = []
    nodes = document.get("nodes", [])
    scene = document.get("scenes", [{}])[document.get("scene", 0)]
    pending = [(index, np.eye(4)) for index in scene.get("nodes", [])]
    while pending:
        index, outer = pending.pop(0)
        node = nodes[index]
        matrix = outer @ _transform(node)
        pending += [(child, matrix) for child in node.get("children", [])]
        if "mesh" in node:
            for primitive in document["meshes"][node["mesh"]]["primitives"]:
                surfaces.append(_surface(document, chunk, primitive, matrix))
    if not surfaces:
        raise ValueError("no triangles in it")
    return surfaces


def _split(data: bytes) -> tuple[dict[str, Any], bytes]:
    if len(data) < 20 or data[:4] != b"glTF":
        raise ValueError("not a GLB file")
    _, version, length = struct.unpack_from("<4sII", data)
    size, kind = struct.unpack_from("<II", data, 12)
    if version != 2 or kind != JSON_CHUNK or length > len(data):
        raise ValueError("not glTF 2.0, or cut short")
    try:
        document = json.loads(data[20 : 20 + size])
    except ValueError as error:
        raise ValueError(f"its JSON can't be read ({error})") from error
    start = 20 + size
    if start + 8 > len(data):
        raise ValueError("its buffers are in other files; export it as one binary file")
    (size,) = struct.unpack_from("<I", data, start)
    return document, data[start + 8 : start + 8 + size]


def _transform(node: Mapping[str, Any]) -> np.ndarray:
    if "matrix" in node:
        return np.array(node["matrix"], dtype=np.float64).reshape(4, 4).T
    x, y, z, w = node.get("rotation", (0.0, 0.0, 0.0, 1.0))
    turn = np.array(
        [
            [1 - 2 * (y * y + z * z), 2 * (x * y - z * w), 2 * (x * z + y * w)],
            [2 * (x * y + z * w), 1 - 2 * (x * x + z * z), 2 * (y * z - x * w)],
            [2 * (x * z - y * w), 2 * (y * z + x * w), 1 - 2 * (x * x + y * y)],
        ]
    )
    matrix = np.eye(4)
    matrix[:3, :3] = turn * np.array(node.get("scale", (1.0, 1.0, 1.0)))
    matrix[:3, 3] = node.get("translation", (0.0, 0.0, 0.0))
    return matrix


def _surface(
    document: Mapping[str, Any], chunk: bytes, primitive: Mapping[str, Any], matrix: np.ndarray
) -> Surface:
    if primitive.get("mode", 4) != 4:
        raise ValueError("only triangles are supported")
    corners = _accessor(document, chunk, primitive["attributes"]["POSITION"])
    order = _accessor(document, chunk, primitive.get("indices"), count=len(corners)).reshape(-1)
    if len(order) % 3 or (len(order) and order.max() >= len(corners)):
        raise ValueError("its indices are damaged")
    placed = corners[order] @ matrix[:3, :3].T + matrix[:3, 3]
    material: Mapping[str, Any] = {}
    if "material" in primitive:
        material = document["materials"][primitive["material"]]
    factor = material.get("pbrMetallicRoughness", {}).get("baseColorFactor", [1.0, 1.0, 1.0, 1.0])
    r, g, b = linear_to_srgb(factor[:3])
    triangles = placed.reshape(-1, 3, 3).astype(np.float32)
    return Surface(material.get("name", ""), (r, g, b), triangles)


def _accessor(
    document: Mapping[str, Any], chunk: bytes, index: Optional[int], count: int = 0
) -> np.ndarray:
    """The values of an accessor, or 0..count-1 where there is none (triangles not indexed)."""
    if index is None:
        return np.arange(count)
    accessor = document["accessors"][index]
    if "sparse" in accessor or "bufferView" not in accessor:
        raise ValueError("sparse or compressed data is not supported; export it without")
    view = document["bufferViews"][accessor["bufferView"]]
    code = accessor["componentType"]
    dtype = np.dtype("<f4" if code == FLOAT else INDEX_TYPES.get(code, "V"))
    if dtype.kind == "V":
        raise ValueError(f"component type {code} is not supported")
    width = {"SCALAR": 1, "VEC3": 3}.get(accessor["type"], 0)
    stride = view.get("byteStride", width * dtype.itemsize)
    start = view.get("byteOffset", 0) + accessor.get("byteOffset", 0)
    if not width or start + stride * (accessor["count"] - 1) + width * dtype.itemsize > len(chunk):
        raise ValueError("its data is cut short or of a kind that is not supported")
    shape, strides = (accessor["count"], width), (stride, dtype.itemsize)
    return np.ndarray(shape, dtype, chunk, start, strides).copy()
