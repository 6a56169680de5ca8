"""The rules of binary glTF 2.0 that a file of ours could break, checked from the specification."""

from __future__ import annotations

import json
import struct

import numpy as np

SIZES = {5121: 1, 5123: 2, 5125: 4, 5126: 4}
WIDTHS = {"SCALAR": 1, "VEC3": 3, "VEC4": 4}


def check_glb(data: bytes) -> dict:
    """Assert that a GLB is well formed; returns its JSON."""
    magic, version, length = struct.unpack_from("<4sII", data)
    assert (magic, version, length) == (b"glTF", 2, len(data))
    json_length, json_kind = struct.unpack_from("<II", data, 12)
    assert json_kind == 0x4E4F534A and json_length % 4 == 0
    document = json.loads(data[20 : 20 + json_length])
    bin_length, bin_kind = struct.unpack_from("<II", data, 20 + json_length)
    assert bin_kind == 0x004E4942 and bin_length % 4 == 0
    binary = data[28 + json_length :]
    assert len(binary) == bin_length
    assert document["asset"]["version"] == "2.0"
    assert document["buffers"] == [{"byteLength": bin_length}]
    for accessor in document["accessors"]:
        check_accessor(document, accessor, binary)
    for mesh in document["meshes"]:
        for primitive in mesh["primitives"]:
            check_primitive(document, primitive, binary)
    for material in document["materials"]:
        factor = material["pbrMetallicRoughness"]["baseColorFactor"]
        assert len(factor) == 4 and all(0 <= x <= 1 for x in factor)
    return document


def values(document: dict, index: int, binary: bytes) -> np.ndarray:
    accessor = document["accessors"][index]
    view = document["bufferViews"][accessor["bufferView"]]
    kind = {5121: "u1", 5123: "<u2", 5125: "<u4", 5126: "<f4"}[accessor["componentType"]]
    width = WIDTHS[accessor["type"]]
    flat = np.frombuffer(binary, kind, accessor["count"] * width, view["byteOffset"])
    return flat.reshape(-1, width)


def check_accessor(document: dict, accessor: dict, binary: bytes) -> None:
    view = document["bufferViews"][accessor["bufferView"]]
    size = SIZES[accessor["componentType"]]
    assert view["byteOffset"] % size == 0
    assert accessor["count"] * size * WIDTHS[accessor["type"]] == view["byteLength"]
    assert view["byteOffset"] + view["byteLength"] <= len(binary)


def check_primitive(document: dict, primitive: dict, binary: bytes) -> None:
    assert primitive["mode"] == 4
    attributes = primitive["attributes"]
    corners = values(document, attributes["POSITION"], binary)
    normals = values(document, attributes["NORMAL"], binary)
    order = values(document, primitive["indices"], binary)[:, 0]
    bounds = document["accessors"][attributes["POSITION"]]
    assert np.array_equal(corners.min(axis=0), np.float32(bounds["min"]))
    assert np.array_equal(corners.max(axis=0), np.float32(bounds["max"]))
    assert len(order) % 3 == 0 and order.max() < len(corners)
    assert np.isfinite(corners).all()
    assert np.allclose(np.linalg.norm(normals, axis=1), 1, atol=1e-5)
    a, b, c = np.moveaxis(corners[order].reshape(-1, 3, 3).astype(float), 1, 0)
    flat = normals[order].reshape(-1, 3, 3)
    assert np.array_equal(flat[:, 0], flat[:, 1]) and np.array_equal(flat[:, 0], flat[:, 2])
    assert ((np.cross(b - a, c - a) * flat[:, 0]).sum(axis=1) > 0).all()
    assert 0 <= primitive["material"] < len(document["materials"])
