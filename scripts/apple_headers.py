"""Write ``mpsref/mps/headers.json``: the names in Apple's headers of the CNN and graph kernels.

Names, argument orders, types and numbers are facts; no text is copied. Two sources, both generated from the headers:

- the wheels ``pyobjc-framework-MetalPerformanceShaders`` and ``pyobjc-framework-Metal`` (any that pip downloads with
  ``--platform macosx_10_9_universal2``): enumerations, structs, functions, how PyObjC converts pointers, and which
  methods it refuses to call;
- https://github.com/madsmtm/objc2-generated, the folders ``MetalPerformanceShaders`` and ``Metal``: classes,
  superclasses and all selectors with the names and the types of their arguments.

Run ``python scripts/apple_headers.py WHEEL_MPS WHEEL_METAL OBJC2_GENERATED > mpsref/mps/headers.json``.
"""

import ast
import itertools
import json
import re
import sys
import zipfile
from pathlib import Path
from typing import Any

MODULES = ("MPSCore", "MPSNeuralNetwork")
METAL = {
    "MTLDevice": ("name", "newCommandQueue", "newBufferWithBytes:length:options:", "newBufferWithLength:options:"),
    "MTLCommandQueue": ("commandBuffer",),
    "MTLCommandBuffer": ("commit", "waitUntilCompleted", "error", "status"),
    "MTLBuffer": ("contents", "length", "didModifyRange:"),
}
"""The protocols of Metal that a backend needs, and which of their methods."""

METAL_ENUMERATIONS = ("MTLCommandBufferStatus", "MTLResourceOptions", "MTLStorageMode", "MTLTextureUsage")
PLAIN = {
    "NSUInteger": "NSUInteger",
    "NSInteger": "NSInteger",
    "usize": "size_t",
    "c_float": "float",
    "c_double": "double",
    "c_ulong": "unsigned long",
    "u64": "uint64_t",
    "u32": "uint32_t",
    "u16": "uint16_t",
    "u8": "uint8_t",
    "c_int": "int",
    "c_ushort": "unsigned short",
    "c_uint": "unsigned int",
    "bool": "BOOL",
    "Bool": "BOOL",
    "c_void": "void",
    "AnyObject": "id",
}


SIGNATURE = re.compile(r"fn \w+(?:<[^>]*>)?\s*\((.*?)\)(?:\s*->\s*([^;{]*?))?\s*(?:where.*)?[;{]", re.DOTALL)


def plain(rust: str) -> str:
    """Return a type of the binding as ``MPSImage``, ``id<MTLDevice>`` or ``float *``; with ``?`` if it may be nil."""
    rust = " ".join(rust.split()).removeprefix("&'static ")
    if found := re.fullmatch(r"&mut Option<Retained<(.*)>>", rust):
        return f"{plain(found[1])} **"
    if found := re.fullmatch(r"Option<(&mut Option<.*>)>", rust):
        return plain(found[1])
    for wrapper in (r"Option<(.*?),? ?>", r"Result<(.*), .*>"):
        if found := re.fullmatch(wrapper, rust):
            return plain(found[1]).rstrip("?") + "?"
    for wrapper in (r"Retained<(.*)>", r"&(?:mut )?(.*)"):
        if found := re.fullmatch(wrapper, rust):
            return plain(found[1])
    if found := re.fullmatch(r"(?:\*mut |\*const )(.*)|NonNull<(.*)>", rust):
        return f"{plain(found[1] or found[2])} *"
    if found := re.fullmatch(r"ProtocolObject<dyn (\w+)>", rust):
        return f"id<{found[1]}>"
    if found := re.fullmatch(r"NS(Mutable)?Array<(.*)>", rust):
        return f"NSArray<{plain(found[2])}>"
    if "Block" in rust or "Handler" in rust:
        return "block"
    return PLAIN.get(rust, rust)


def methods(text: str, only: tuple[str, ...] = ()) -> dict[str, dict[str, Any]]:
    """Read the methods of one ``impl`` block, all or some selectors."""
    found = {}
    parts = text.split("#[unsafe(method(")
    for before, part in itertools.pairwise(parts):
        selector, rest = part.split(")", 1)
        if only and selector not in only:
            continue
        signature = SIGNATURE.search(rest)
        if signature is None:
            raise ValueError(f"{selector} has no signature: {rest}")
        names = [name.strip() for name in re.split(r",(?![^<(]*[>)])", signature[1]) if name.strip()]
        receiver = "class"
        if names and names[0] == "&self":
            receiver, names = "instance", names[1:]
        elif names and names[0].startswith("this: Allocated"):
            receiver, names = "init", names[1:]
        typed = [tuple(name.split(":", 1)) for name in names]
        if selector.endswith(":_"):  # the binding returns an error as its result
            selector = selector.removesuffix("_")
            typed.append(("error", "*mut NSError"))
        if selector.count(":") != len(typed):
            raise ValueError(f"{selector} has {len(typed)} arguments: {signature[1]}")
        method: dict[str, Any] = {
            "receiver": receiver,
            "arguments": [[name.strip(), plain(kind)] for name, kind in typed],
            "returns": plain(signature[2]) if signature[2] else "void",
        }
        attributes = before.rsplit(";", 1)[-1] + rest[: signature.start()]
        if "#[optional]" in attributes:
            method["optional"] = True
        if "#[deprecated" in attributes:
            method["deprecated"] = True
        found[selector] = method
    return found


def blocks(text: str, head: str) -> list[tuple[re.Match[str], str]]:
    """Return each match of ``head`` with the braces that follow it."""
    result = []
    for match in re.finditer(head, text):
        depth = 0
        for end in range(match.end() - 1, len(text)):
            depth += {"{": 1, "}": -1}.get(text[end], 0)
            if depth == 0:
                break
        result.append((match, text[match.end() : end]))
    return result


def binding(folder: Path) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the classes and the protocols of the binding."""
    classes: dict[str, Any] = {}
    protocols: dict[str, Any] = {}
    paths = [path for module in MODULES for path in sorted((folder / "MetalPerformanceShaders" / module).glob("*.rs"))]
    others = "MPSImage/MPSImageResampling.rs", "MPSMatrix/MPSMatrixSoftMax.rs", "MPSMatrix/MPSMatrixTypes.rs"
    paths += [folder / "MetalPerformanceShaders" / name for name in others]
    texts = {path.stem: re.sub(r"^\s*///.*\n", "", path.read_text(), flags=re.MULTILINE) for path in paths}
    for header, text in texts.items():
        for supers, name in re.findall(r"super\(([^)]*)\).*?pub struct (\w+)\s*;", text, re.DOTALL):
            super_class = supers.split(",")[0].strip()
            classes[name] = {"super": super_class, "header": f"{header}.h", "unavailable": [], "methods": {}}
    for header, text in texts.items():
        for match, body in blocks(text, r"pub unsafe trait (\w+):([^{]*)\{"):
            protocols[match[1]] = {"header": f"{header}.h", "methods": methods(body)}
        for match, body in blocks(text, r"\nimpl (\w+) \{"):
            if match[1] in classes:
                classes[match[1]]["methods"].update(methods(body))
                classes[match[1]]["unavailable"] += re.findall(r"// ([-+]\w+) \(unavailable\)", body)
    for file in sorted((folder / "Metal").glob("MTL[A-Z]*.rs")):
        text = re.sub(r"^\s*///.*\n", "", file.read_text(), flags=re.MULTILINE)
        for match, body in blocks(text, r"pub unsafe trait (\w+):([^{]*)\{"):
            if match[1] in METAL:
                protocols[match[1]] = {"header": f"{file.stem}.h", "methods": methods(body, METAL[match[1]])}
    return classes, protocols


def without_inherited(classes: dict[str, Any]) -> None:
    """Drop methods that a class only repeats from a superclass."""
    for known in classes.values():
        parent = known["super"]
        while parent in classes:
            for selector, method in classes[parent]["methods"].items():
                if known["methods"].get(selector) == method and selector not in ("init", "new"):
                    known.setdefault("repeats", []).append(selector)
            parent = classes[parent]["super"]
        for selector in set(known.pop("repeats", [])):
            del known["methods"][selector]
        for unavailable in ("init", "new"):
            known["methods"].pop(unavailable, None)
        known["methods"] = dict(sorted(known["methods"].items()))


def metadata(wheel: str, package: str) -> dict[str, Any]:
    """Read ``_metadata.py`` of a wheel of PyObjC without running it."""
    tree = ast.parse(zipfile.ZipFile(wheel).read(f"{package}/_metadata.py"))
    found: dict[str, Any] = {"values": {}, "structs": {}, "conversions": {}}
    found |= {"functions": [], "constants": [], "kinds": []}
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            target = node.targets[0].id
            if target == "enums":
                pairs = [pair.split("@") for pair in ast.literal_eval(node.value).strip("$").split("$")]
                found["values"].update({name: int(value) for name, value in pairs})
            elif target == "constants":
                found["constants"] = [part.split("@")[0] for part in ast.literal_eval(node.value).strip("$").split("$")]
            elif target == "functions" and isinstance(node.value, ast.Dict):
                found["functions"] = [key.value for key in node.value.keys if isinstance(key, ast.Constant)]
        if not isinstance(node, ast.Call):
            continue
        function = ast.unparse(node.func)
        if function == "objc.createStructType":
            name, encoding, fields = (ast.literal_eval(part) for part in node.args)
            found["structs"][name.split(".")[-1]] = [encoding.decode(), fields]
        elif function == "NewType":
            found["kinds"].append(ast.literal_eval(node.args[0]))
        elif function == "r":
            owner, selector, text = (ast.literal_eval(part) for part in node.args)
            described = {str(index): part for index, part in text.get("arguments", {}).items()}
            described |= {"returned": text["retval"]} if "retval" in text else {}
            kept = {}
            for place, part in described.items():
                keys = ("type_modifier", "c_array_of_variable_length", "c_array_length_in_arg")
                if conversion := {key: part[key] for key in keys if key in part}:
                    kept[place] = conversion
            if kept:
                found["conversions"].setdefault(owner.decode(), {})[selector.decode()] = kept
    return found


def refused(wheel: str, package: str) -> dict[str, list[str]]:
    """Read the calls of ``objc.registerUnavailableMethod`` in ``__init__.py`` of a wheel, which loop over pairs."""
    tree = ast.parse(zipfile.ZipFile(wheel).read(f"{package}/__init__.py"))
    found: dict[str, set[str]] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.For) and "registerUnavailableMethod" in ast.unparse(node.body[0]):
            for owner, selector in ast.literal_eval(node.iter):
                found.setdefault(owner, set()).add(selector.decode())
    return {owner: sorted(selectors) for owner, selectors in found.items()}


def decoded(value: Any) -> Any:
    """Return a value with bytes as text."""
    if isinstance(value, dict):
        return {key: decoded(part) for key, part in value.items()}
    return value.decode() if isinstance(value, bytes) else value


def enumerated(values: dict[str, int], kinds: list[str]) -> dict[str, dict[str, int]]:
    """Group the members of enumerations by their longest name of a type that begins them."""
    groups: dict[str, dict[str, int]] = {kind: {} for kind in kinds}
    stems = [(kind, stem) for kind in kinds for stem in (kind, kind.rstrip("s"), kind.removesuffix("Options"))]
    for name, value in sorted(values.items()):
        prefixes = [kind for kind, stem in stems if name.startswith(stem)]
        if prefixes and not name.endswith("_h"):
            groups[max(prefixes, key=len)][name] = value
    return {kind: members for kind, members in sorted(groups.items()) if members}


def main(mps_wheel: str, metal_wheel: str, objc2: str) -> None:
    """Write the table to standard output."""
    classes, protocols = binding(Path(objc2))
    without_inherited(classes)
    mps, metal = metadata(mps_wheel, "MetalPerformanceShaders"), metadata(metal_wheel, "Metal")
    declared = [method for part in (classes | protocols).values() for method in part["methods"].values()]
    types = {kind for method in declared for kind in (method["returns"], *(kind for _, kind in method["arguments"]))}
    structs = mps["structs"] | metal["structs"]
    structs = {name: structs[name] for name in structs if name in types or name == "MTLOrigin"}
    owners = set(classes) | {"NSObject"}
    selectors = {selector for part in (classes | protocols).values() for selector in part["methods"]}
    conversions = {
        owner: {selector: decoded(part) for selector, part in of_owner.items() if selector in selectors}
        for source in (metal, mps)
        for owner, of_owner in source["conversions"].items()
        if owner in owners
    }
    of_metal = metal["conversions"]["NSObject"]
    conversions["NSObject"] |= {selector: decoded(part) for selector, part in of_metal.items() if selector in selectors}
    enumerations = enumerated(mps["values"], mps["kinds"])
    of_metal = enumerated(metal["values"], metal["kinds"])
    enumerations |= {kind: of_metal[kind] for kind in METAL_ENUMERATIONS}
    unavailable = refused(mps_wheel, "MetalPerformanceShaders")
    sections: dict[str, Any] = {
        "classes": classes,
        "protocols": protocols,
        "enumerations": enumerations,
        "structs": structs,
        "conversions": conversions,
        "unavailable": {owner: unavailable[owner] for owner in unavailable if owner in classes},
    }
    lines = ["{"]
    sources = [Path(mps_wheel).name, Path(metal_wheel).name, "https://github.com/madsmtm/objc2-generated"]
    lines.append(f'"sources": {json.dumps(sources)},')
    functions = sorted([*mps["functions"], "MTLCreateSystemDefaultDevice"])
    lines.append(f'"functions": {json.dumps(functions)},')
    lines.append(f'"constants": {json.dumps(mps["constants"])},')
    for number, (section, members) in enumerate(sections.items()):
        lines.append(f'"{section}": {{')
        separators = (",", ":")
        rows = [f"{json.dumps(name)}: {json.dumps(members[name], separators=separators)}" for name in sorted(members)]
        lines.append(",\n".join(rows))
        lines.append("}" + ("," if number + 1 < len(sections) else ""))
    print("\n".join([*lines, "}"]))


if __name__ == "__main__":
    main(*sys.argv[1:])
