"""The kernels of a source: definitions, instantiations of templates, their parameters and function constants."""

from __future__ import annotations

import bisect
import itertools
import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any, TypeAlias

from ..interface import CompileError
from .lexer import spell
from .syntax import CLASSES, SPACES, Declaration, Kind, Syntax

MOST_BUFFERS = 31

SCALARS = (
    "uint",
    "ushort",
    "int",
    "short",
    "ulong",
    "long",
    "uchar",
    "size_t",
    "uint32_t",
    "uint16_t",
    "int32_t",
    "unsigned",
)
VECTORS = (*SCALARS, "uint2", "uint3", "ushort2", "ushort3")

# attribute: (C++ expression of the group `g`, the thread `t` and the axis {0}, whether vectors are legal)
ATTRIBUTES: dict[str, tuple[str, bool]] = {
    "thread_position_in_grid": ("g->origin[{0}] + anymetal::place(g, t, {0})", True),
    "thread_position_in_threadgroup": ("anymetal::place(g, t, {0})", True),
    "threadgroup_position_in_grid": ("g->position[{0}]", True),
    "threads_per_threadgroup": ("g->extent[{0}]", True),
    "dispatch_threads_per_threadgroup": ("g->width[{0}]", True),
    "threads_per_grid": ("g->grid[{0}]", True),
    "threadgroups_per_grid": ("g->groups[{0}]", True),
    "grid_origin": ("0", True),
    "grid_size": ("g->grid[{0}]", True),
    "thread_index_in_threadgroup": ("t", False),
    "thread_index_in_simdgroup": ("t % 32", False),
    "simdgroup_index_in_threadgroup": ("t / 32", False),
    "threads_per_simdgroup": ("32", False),
    "thread_execution_width": ("32", False),
    "simdgroups_per_threadgroup": ("(g->size + 31) / 32", False),
    "dispatch_simdgroups_per_threadgroup": ("(g->width[0] * g->width[1] * g->width[2] + 31) / 32", False),
    "thread_index_in_quadgroup": ("t % 4", False),
    "quadgroup_index_in_threadgroup": ("t / 4", False),
    "quadgroups_per_threadgroup": ("(g->size + 3) / 4", False),
    "dispatch_quadgroups_per_threadgroup": ("(g->width[0] * g->width[1] * g->width[2] + 3) / 4", False),
}
UNSUPPORTED = {
    "stage_in": "inputs of a stage are not supported",
    "payload": "mesh functions are not supported",
    "imageblock": "image blocks are not supported",
}
"""Attributes of parameters that no runtime has."""
LACKING = "are not supported"
TYPES = {
    "command buffers": r"command_buffer|(render|compute)_(command|pipeline_state)",
    "image blocks": r"imageblock\w*|threadgroup_imageblock|(s?r|rg|s?rgba)(8|16)[us]norm|rgb10a2|rg11b10f|rgb9e5",
    "function tables and ray tracing": r"(visible|intersection)_function_table|raytracing|\w*acceleration_structure"
    r"|intersector|intersection_(query|params|result)|ray(_data)?",
    "mesh functions": r"mesh|topology|object_data|mesh_grid_properties",
    "inputs of a stage": r"patch_control_point|interpolant|interpolation",
    "rasterization rate maps": r"rasterization_rate_map_\w+",
}
"""What MSL has and no runtime has, with the names of its types."""
IMAGE = re.compile(r"(?:texture|depth)(?:1d|2d|3d|cube)(?:_ms)?(?:_array)?|texture_buffer|sampler")
"""The names of the types of textures and samplers."""
MOST_IMAGES = {"texture": 128, "sampler": 16}
"""The numbers of textures and samplers of a kernel."""
KINDS = ("buffer", "threadgroup", *MOST_IMAGES)
"""The kinds of what the caller binds."""
ENTRY_BYTES = 64
"""The bytes of ``anymetal_texture`` of abi.h."""
RENDER = ("vertex", "fragment", "mesh", "object", "intersection")
"""Functions of other stages, which no kernel calls."""
LINKED = ("visible", "stitchable")
"""Functions that a kernel may call, and whose pointers the host may take."""
NO_DATA = ("using", "typedef", "static", "friend", "template", "enum")
"""First words of members that are no data."""

TENSOR = ("anymetal_data", "anymetal_extents.anymetal_sizes", "anymetal_strides")
"""The members of a tensor in tensor.h."""

Structs: TypeAlias = Mapping[str, tuple[str, ...]]
"""The members of structs, by the names of the structs."""


@dataclass(frozen=True)
class Parameter:
    """A parameter of a kernel: a buffer, threadgroup memory of a length from the caller, or a number of the thread."""

    text: str
    kind: str
    """``buffer``, ``threadgroup``, ``texture``, ``sampler``, ``value`` or ``unsupported``."""
    index: int | None = None
    """The index of what the caller binds; None if it is an expression."""
    value: str = ""
    """C++: the index, or the value for the thread; the reason for a parameter that is not supported."""
    is_reference: bool = False
    axes: int = 1
    """The number of components of a value."""
    condition: str = ""
    """The function constant that says whether the parameter exists."""
    is_array: bool = False
    """Whether it is ``array<device T *, N>``, N buffers, or an array of textures or samplers."""
    members: tuple[str, ...] = ()
    """The members of the struct that it points or refers to, if some are pointers, textures or samplers."""


@dataclass(frozen=True)
class Kernel:
    """A kernel function, or an instantiation of a template of one."""

    name: str
    call: str
    """The function in C++, as it is called at ``at``."""
    at: int = field(compare=False)
    """Position in the text behind which its entry stands."""
    parameters: tuple[Parameter, ...]
    names_threads: bool
    """Whether it has the attribute ``max_total_threads_per_threadgroup``."""
    function: str
    """The name of the function, or of the template that it instantiates."""
    problem: str = ""
    """The error about what no runtime has, if it or a function that it calls needs that."""
    table: int = -1
    """The index of the buffer that describes its textures and samplers, behind the others; -1 if it may have none."""

    @property
    def axes(self) -> int:
        """The number of components of the thread positions."""
        return max((known.axes for known in self.parameters), default=1)

    @property
    def bindings(self) -> tuple[Parameter, ...]:
        """The buffers and the threadgroup memory that the caller binds."""
        return tuple(known for known in self.parameters if known.kind in ("buffer", "threadgroup"))

    @property
    def images(self) -> tuple[Parameter, ...]:
        """The textures and samplers that the caller binds."""
        return tuple(known for known in self.parameters if known.kind in MOST_IMAGES)

    @property
    def listed(self) -> list[Parameter]:
        """The parameters that the caller binds in the order of its arguments, which is that of known indices."""
        known = (*self.bindings, *self.images)
        return sorted(known, key=lambda one: (KINDS.index(one.kind), MOST_BUFFERS if one.index is None else one.index))

    def describe(self) -> dict[str, Any]:
        """Return this kernel as JSON data."""
        return asdict(self)

    @classmethod
    def described(cls, row: Mapping[str, Any]) -> Kernel:
        """Return the kernel that :meth:`describe` describes."""
        parameters = ({**one, "members": tuple(one["members"])} for one in row["parameters"])
        return cls(**{**row, "parameters": tuple(Parameter(**one) for one in parameters)})

    def arguments(self) -> str:
        """Return the arguments of a call for the group ``g`` and the thread ``t`` (see abi.h)."""
        parts = []
        for known in self.parameters:
            if known.kind == "value":
                # Without y and z the position in the group is t, which saves a division.
                value = known.value if self.axes > 1 else known.value.replace("anymetal::place(g, t, {0})", "t")
                components = (f"uint32_t({value.format(axis)})" for axis in range(known.axes))
                parts.append(f"anymetal::index{{{', '.join(components)}}}")
            elif known.kind in MOST_IMAGES:
                entries = f"g->buffers[{self.table}]"
                parts.append(f"anymetal::{known.kind}_argument{{{entries}, uint({known.value})}}")
            elif known.members == TENSOR:
                parts.append(f"anymetal::value{{g->buffers[{known.value}]}}")
            else:
                table = "buffers" if known.kind == "buffer" else "locals"
                item = f"g->{table} + {known.value}" if known.is_array else f"g->{table}[{known.value}]"
                parts.append(f"anymetal::pointer{'s' if known.is_array else ''}{{{item}}}")
        return ", ".join(parts)

    def _count(self, kind: str) -> int:
        """Return the number of indices of a kind, up to the largest: all there are if one is an expression."""
        indices = [known.index for known in self.bindings if known.kind == kind]
        return MOST_BUFFERS if None in indices else max((i for i in indices if i is not None), default=-1) + 1

    @property
    def slots(self) -> int:
        """The number of buffers that the entry for a GPU takes."""
        return max(self._count("buffer"), self.table + 1, 1)

    def entry(self) -> str:
        """Return the C++ of the entry point and of what Python must know of the parameters."""
        rows = ", ".join(f"uint({known.value}), bool({known.condition or 'true'})" for known in self.bindings)
        names = [f"b{i}" for i in range(self.slots)]
        parameters, buffers = ", ".join(f"void *{name}" for name in names), ", ".join(names)
        call = (
            f"ANYMETAL_ENTRY(({parameters}), ANYMETAL_LIST({buffers}), {self._count('threadgroup')}, "
            f"{self.call}({self.arguments()}))"
        )
        members = [
            f"ANYMETAL_MEMBER(({self.call}), {place}, {name})"
            for place, known in enumerate(self.parameters)
            for name in known.members
        ]
        more = f" ANYMETAL_MEMBERS({len(members)}, {', '.join(members)})" if members else ""
        if images := [f"uint({known.value}), bool({known.condition or 'true'})" for known in self.images]:
            more += f" ANYMETAL_IMAGES_OF(({self.call}), {len(images)}, {', '.join(images)})"
        return f"{call} ANYMETAL_ABOUT(({self.call}), {rows}){more}"


@dataclass(frozen=True)
class Constant:
    """A function constant."""

    name: str
    type: str
    index: str
    first: int
    """Its declaration."""
    last: int


def is_kernel(syntax: Syntax, one: Declaration) -> bool:
    """Return whether a declaration is that of a kernel or an instantiation of one."""
    head = one.parameters if one.parameters >= 0 else one.last
    return "kernel" in one.attributes or "kernel" in syntax.texts(one.first, head)


def render_stage(syntax: Syntax, one: Declaration, others: tuple[str, ...] = RENDER) -> str:
    """Return the stage of a function that is no kernel, or an empty string."""
    names = (*one.attributes, syntax[one.first])
    return next((name for name in names if name in others), "") if one.kind is Kind.FUNCTION else ""


def template_of(syntax: Syntax, one: Declaration) -> bool:
    """Return whether a declaration is a template or a member of one."""
    around = (one, *_owners(one))
    return any(syntax[one.first] == "template" and syntax[one.first + 1] == "<" for one in around)


def _owners(one: Declaration) -> Iterator[Declaration]:
    """Yield the classes and namespaces around a declaration, the innermost first."""
    while one.owner is not None:
        one = one.owner
        yield one


def is_instantiation(syntax: Syntax, one: Declaration) -> bool:
    """Return whether a declaration is an explicit instantiation, ``template ... name<...>;``."""
    return one.kind is Kind.OTHER and syntax[one.first] == "template" and syntax[one.first + 1] != "<"


def kernels(syntax: Syntax) -> dict[str, Kernel]:
    """Return the kernels of a source by their names in the library, in order."""
    found, templates, structs = dict[str, Kernel](), dict[str, list[Declaration]](), structs_of(syntax)
    problems = lacking(syntax)
    for one in syntax.declarations:
        if not is_kernel(syntax, one):
            continue
        problem = problems.get(one.first, "")
        if one.kind is Kind.FUNCTION:
            kernel = _defined(syntax, one, found, structs)
            if template_of(syntax, one):
                templates.setdefault(syntax[one.parameters - 1], []).append(one)
            else:
                found[kernel.name] = replace(kernel, problem=problem)
        elif is_instantiation(syntax, one):
            kernel = _instantiated(syntax, one, templates, structs)
            found[kernel.name] = replace(kernel, problem=problem)
    return found


def structs_of(syntax: Syntax) -> Structs:
    """Return the members of each struct in which some are pointers, textures or samplers.

    Those of a struct in it are ``outer.inner``.
    """
    found, members = dict[str, tuple[str, ...]](), dict[int, list[Declaration]]()
    images = images_of(syntax)
    for one in syntax.declarations:
        if one.kind is Kind.OTHER and one.owner is not None and one.parameters < 0:
            members.setdefault(one.owner.opening, []).append(one)
        elif one.kind is Kind.CLASS:
            data = [member for member in members.get(one.opening, []) if syntax[member.first] not in NO_DATA]
            words = [set(syntax.texts(member.first, member.last)) for member in data]
            if any(("*" in known and known & SPACES) or known & (found.keys() | images) for known in words):
                names = (name for member in data for name in _declared(syntax, member, found))
                found[class_name(syntax, one)] = tuple(names)
    return found


def images_of(syntax: Syntax) -> set[str]:
    """Return the names of the types of textures and samplers in a source, but for classes of its own, and aliases."""
    own = {class_name(syntax, one) for one in syntax.declarations if one.kind is Kind.CLASS}
    found = {text for text in set(syntax) - own if IMAGE.fullmatch(text)}
    return found | {name for name, words in syntax.aliases.items() if not found.isdisjoint(words)} if found else found


def class_name(syntax: Syntax, one: Declaration) -> str:
    """Return the name of a class."""
    if syntax[one.first] == "typedef":
        return syntax[one.last - 1]
    return syntax.class_name(one)


def _declared(syntax: Syntax, one: Declaration, structs: Structs) -> Iterator[str]:
    """Yield the names of the data that a declaration declares."""
    name, inner, is_value = "", tuple[str, ...](), False
    for i in syntax.top(one.first, one.last + 1):
        if syntax[i] in (",", ";"):
            yield from (f"{name}.{part}" for part in inner) if inner else (name,)
            is_value = False
        elif syntax[i] == "=":
            is_value = True
        elif syntax[i] == "*" or (syntax[i] == "[" and not syntax.is_attribute(i)):
            inner = ()
        elif syntax.words[i].is_name and not is_value and syntax[i + 1] != "::":
            name, inner = syntax[i], structs.get(syntax[i], inner)


def _defined(syntax: Syntax, one: Declaration, known: dict[str, Kernel], structs: Structs) -> Kernel:
    name = syntax[one.parameters - 1]
    plain, _ = syntax.attributes(one.first, one.parameters)
    words = [syntax[i] for i in plain if syntax[i] != "kernel"]
    if "void" not in words[max(len(words) - 3, 0) :]:
        raise syntax.error(one.parameters - 1, f"kernel `{name}` must return void")
    host = _text(one.attributes.get("host_name", "")) or name
    if not template_of(syntax, one) and host in known:
        raise syntax.error(one.parameters - 1, f"there are two kernels `{host}`")
    return _kernel(syntax, one, host, _qualified(syntax, one, name), one, structs)


def _qualified(syntax: Syntax, one: Declaration, name: str) -> str:
    """Return the name of a declaration with those of the classes and namespaces around it."""
    found = [name]
    for owner in _owners(one):
        first = owner.opening
        while syntax.words[first - 1].is_name and syntax[first - 2] == "::":  # `namespace a::b {`
            first -= 2
        words = syntax.texts(first - 1, owner.opening)
        found[:0] = [word for word in words if word not in ("::", "namespace", '"C"')]
    return "::".join(("", *found))


def _instantiated(
    syntax: Syntax, one: Declaration, templates: dict[str, list[Declaration]], structs: Structs
) -> Kernel:
    plain = [i for i in syntax.attributes(one.first + 1, one.last)[0] if syntax[i] != "kernel"]
    start = next((i for i in plain if i > syntax.partner[plain[1]]), 0) if syntax[plain[0]] == "decltype" else plain[0]
    opening = next((i for i in syntax.top(start, one.last) if syntax[i] == "("), -1)
    end = opening if opening >= 0 else one.last
    angle = next((i for i in syntax.top(start, end) if syntax[i] == "<" and syntax.behind(i) == end), -1)
    first = (angle if angle >= 0 else end) - 1
    short = syntax[first]
    while syntax[first - 1] == "::":
        first -= 2 if syntax.words[first - 2].is_name and syntax[first - 2] != "void" else 1
    call = spell(syntax.words[first:end])
    if (one.owner is None and not call.startswith("::")) or first == (angle if angle >= 0 else end) - 1:
        # Not a function of metal, of which all are visible after `using namespace metal`, nor a name in the entry.
        call = _qualified(syntax, one, call)
    if short not in templates:
        raise syntax.error(first, f"there is no kernel template `{short}` to instantiate")
    host, known = _text(one.attributes.get("host_name", "")) or call, templates[short]
    given, wanted = (len(list(syntax.split(i))) for i in (angle, known[-1].first + 1)) if angle >= 0 else (0, 1)
    if opening >= 0 and (given < wanted or known[1:]):  # the types of the parameters select the instantiation
        types = spell(syntax.words[i] for i in syntax.attributes(opening, syntax.partner[opening] + 1)[0])
        call = f"((void (*){types}){call})"
        count = len(list(syntax.split(opening)))
        known = [each for each in known if len(list(syntax.split(each.parameters))) == count] or known
    return _kernel(syntax, known[-1], host, call, one, structs)


def _kernel(syntax: Syntax, one: Declaration, name: str, call: str, place: Declaration, structs: Structs) -> Kernel:
    marks = one.attributes
    if marks.get("max_total_threads_per_threadgroup") == "":
        raise syntax.error(one.first, f"kernel `{name}`: [[max_total_threads_per_threadgroup(N)]] needs a number")
    behind = syntax.partner[one.parameters] + 1
    for i in itertools.chain(range(one.first + 1, one.parameters), range(behind, max(one.opening, behind))):
        if syntax.is_attribute(i) and syntax.has_brackets(i) and (i >= behind or syntax[i - 1] == "kernel"):
            where = "behind the parameters it is one of the type" if i >= behind else "none can follow `kernel`"
            raise syntax.error(i, f"kernel `{name}`: write the attribute before `kernel`: {where}")
    kernel = Kernel(
        name,
        call,
        syntax.words[_outermost_class(place).last].end,
        tuple(_parameters(syntax, one, name, structs)),
        "max_total_threads_per_threadgroup" in marks,
        syntax[one.parameters - 1],
    )
    has_table = kernel.images or (any(known.members for known in kernel.bindings) and images_of(syntax))
    return replace(kernel, table=kernel._count("buffer")) if has_table else kernel


def _outermost_class(one: Declaration) -> Declaration:
    """Return the outermost class around a declaration, or itself: what follows it is at the scope of a namespace."""
    return [one, *(owner for owner in _owners(one) if owner.kind is Kind.CLASS)][-1]


def _text(literals: str) -> str:
    """Return the contents of string literals."""
    return "".join(re.findall(r'"((?:\\.|[^"\\])*)"', literals))


def _parameters(syntax: Syntax, one: Declaration, name: str, structs: Structs) -> Iterator[Parameter]:
    """Yield the parameters; those without an index have the first that is free."""
    rows = []
    taken: dict[str, set[int]] = {kind: set() for kind in KINDS}
    certain = set[tuple[str, int]]()
    images = images_of(syntax)
    for first, end in syntax.split(one.parameters):
        plain, marks = syntax.attributes(first, end)
        if [syntax[i] for i in plain] == ["void"]:
            continue
        texts = [syntax[i] for i in plain]
        named = [word for text in texts for word in syntax.aliases.get(text, ())]  # `typedef device float *pointer;`
        stars = sum(syntax[i] == "*" for i in syntax.top(first, end)) + named.count("*")
        rows.append((first, plain, [*named, *texts], marks, stars))
        for kind, known in taken.items():
            if marks.get(kind, "").isdecimal():
                number = int(marks[kind])
                if "function_constant" not in marks:  # else a launch knows which of them exist
                    if (kind, number) in certain:
                        raise syntax.error(first, f"kernel `{name}` uses a {kind} index twice: {number}")
                    certain.add((kind, number))
                known.add(number)

    def refused(first: int, message: str) -> Parameter:
        return Parameter(text, "unsupported", value=str(syntax.error(first, message)))

    for first, plain, texts, marks, stars in rows:
        text = spell(syntax.words[i] for i in plain)
        where = f"parameter `{text}` of kernel `{name}`"
        lacking = next((mark for mark in (*marks, texts[0]) if mark in UNSUPPORTED), None)
        if lacking:
            yield refused(first, f"{where}: {UNSUPPORTED[lacking]}")
            continue
        if "array_ref" in texts:
            yield refused(first, f"{where}: array_ref is for other functions: a kernel has an array<T, N>")
            continue
        condition = marks.pop("function_constant", "")
        if not {"*", "&"} & set(texts) and (image := _image(marks, images.intersection(texts))):
            yield _indexed(syntax, first, where, image, marks, taken[image], text, condition, "array" in texts)
            continue
        value = next((mark for mark in marks if mark in ATTRIBUTES), None)
        if value is not None:
            yield _value(syntax, first, where, text, texts, value)
            continue
        for mark in marks:
            if mark not in ("buffer", "threadgroup", "id", "raster_order_group", "access", "user", "maybe_unused"):
                yield refused(first, f"{where}: [[{mark}]] is not supported")
                break
        else:
            is_tensor = ("tensor", "<") in itertools.pairwise(texts)
            if not {"*", "&", "["} & set(texts) and not marks and not is_tensor:
                raise syntax.error(
                    first, f"{where}: needs an attribute such as [[buffer(0)]] or [[thread_position_in_grid]]"
                )
            is_array = not stars and "*" in texts and ("array", "<") in itertools.pairwise(texts)
            if stars > 1 or (stars and texts[-1] == "]"):
                what = "an array of buffers is `array<device T *, N> name [[buffer(n)]]`"
                yield refused(first, f"{where}: a pointer to pointers; {what}")
                continue
            if is_array and "buffer" not in marks:
                raise syntax.error(first, f"{where}: an array of buffers needs the index of the first, [[buffer(n)]]")
            kind = "threadgroup" if "threadgroup" in texts and not is_array else "buffer"
            written = marks.get(kind, "")
            free = next(i for i in range(len(taken[kind]) + 1) if i not in taken[kind])
            index: int | None = free if not written else int(written) if written.isdecimal() else None
            if index is not None:
                if index >= MOST_BUFFERS:
                    raise syntax.error(first, f"{where}: the buffer index is above {MOST_BUFFERS - 1}")
                taken[kind].add(index)
            own = (word for word, after in zip(texts, [*texts[1:], ""], strict=True) if after != "::")
            members = next((structs[word] for word in own if word in structs), ())
            if not {"*", "&", "["} & set(texts):
                members = TENSOR  # the other values that a parameter may be have attributes of their own
            yield Parameter(text, kind, index, written or str(free), "&" in texts, 1, condition, is_array, members)


def _image(marks: Mapping[str, str], types: Collection[str]) -> str:
    """Return whether a parameter that is a value is a texture or a sampler, or an array of such."""
    named = next((kind for kind in MOST_IMAGES if kind in marks), "")
    return named or ("" if not types or "buffer" in marks else "sampler" if "sampler" in types else "texture")


def _indexed(
    syntax: Syntax, first: int, where: str, kind: str, marks: Mapping[str, str], taken: set[int], text: str,
    condition: str, is_array: bool,
) -> Parameter:  # fmt: skip
    """Return a texture or a sampler, at its index or at the first that is free."""
    written, most = marks.get(kind, ""), MOST_IMAGES[kind]
    free = next(i for i in range(len(taken) + 1) if i not in taken)
    index: int | None = free if not written else int(written) if written.isdecimal() else None
    if index is not None and index >= most:
        raise syntax.error(first, f"{where}: the {kind} index is above {most - 1}")
    if index is not None:
        taken.add(index)
    return Parameter(text, kind, index, written or str(free), False, 1, condition, is_array)


def _value(syntax: Syntax, first: int, where: str, text: str, texts: list[str], mark: str) -> Parameter:
    value, has_vectors = ATTRIBUTES[mark]
    types = VECTORS if has_vectors else SCALARS
    named = next((word for word in texts if word in types), "")
    if not named and not set(texts) & {"auto"}:
        known = ", ".join(types[:2] + types[len(SCALARS) :])
        raise syntax.error(first, f"{where}: [[{mark}]] must have one of the types {known}")
    axes = int(named[-1]) if named in VECTORS[len(SCALARS) :] else 1
    return Parameter(text, "value", value=value, axes=axes)


def constants(syntax: Syntax) -> Iterator[Constant]:
    """Yield the function constants of a source."""
    for one in syntax.declarations:
        if one.kind is not Kind.OTHER or "function_constant" not in one.attributes:
            continue
        if one.owner is not None and one.owner.kind is Kind.CLASS:
            continue  # an argument of another stage, which it makes optional
        plain, marks = syntax.attributes(one.first, one.last)
        texts = [syntax[i] for i in plain]
        end = texts.index("=") if "=" in texts else len(texts)
        words = [word for word in texts[: end - 1] if word not in ("constant", "const", "constexpr", "static")]
        if end < 2 or set(texts) & CLASSES:
            raise syntax.error(one.first, "a function constant is `constant TYPE name [[function_constant(N)]];`")
        yield Constant(texts[end - 1], " ".join(words), marks["function_constant"], one.first, one.last)


def supported(kernel: Kernel) -> None:
    """Raise CompileError for a kernel that needs what no runtime has."""
    for known in kernel.parameters:
        if known.kind == "unsupported":
            raise CompileError(known.value)
    if kernel.problem:
        raise CompileError(kernel.problem)


def lacking(syntax: Syntax) -> Mapping[int, str]:
    """Return the errors about what no runtime has, by the first tokens of the declarations that need it.

    These are the declarations with the name of such a type, and those with the name of one of these declarations.
    """
    if syntax.lacking is None:
        syntax.lacking = _lacking(syntax)
    return syntax.lacking


def _lacking(syntax: Syntax) -> dict[int, str]:
    everything = [one for one in syntax.declarations if one.kind is not Kind.NAMESPACE]
    outer = [one for one in everything if one.owner is None or one.owner.kind is Kind.NAMESPACE]
    own = {name for one in outer for name in (class_name(syntax, one) if one.kind is Kind.CLASS else "",)}
    own |= syntax.aliases.keys()
    kinds = {
        text: next((kind for kind, names in TYPES.items() if re.fullmatch(names, text)), "")
        for text in set(syntax) - own
    }
    if not any(kinds.values()):
        return {}
    outer.sort(key=lambda one: one.first)
    firsts, places = [one.first for one in outer], dict[str, list[int]]()
    for i in range(syntax.size):
        if syntax.words[i].is_name:
            places.setdefault(syntax[i], []).append(i)

    def around(i: int) -> Declaration | None:
        at = bisect.bisect_right(firsts, i) - 1
        return outer[at] if at >= 0 and i <= outer[at].last else None

    found, waiting, known = dict[int, str](), list[Declaration](), set[str]()
    for i in sorted(i for text, kind in kinds.items() if kind for i in places.get(text, ())):
        if _names_type(syntax, i) and (one := around(i)) and one.first not in found:
            found[one.first] = str(syntax.error(i, f"{syntax[i]}: {kinds[syntax[i]]} {LACKING}"))
            waiting.append(one)
    while waiting:
        one = waiting.pop()
        name = _name_of(syntax, one)
        if not name or name in known:
            continue
        known.add(name)
        uses = [(i, other) for i in places.get(name, ()) if syntax[i - 1] != "." and (other := around(i))]
        hidden = {other.first for i, other in uses if _declares(syntax, i) and i != other.parameters - 1}
        for _, other in uses:
            if other.first not in found and other.first not in hidden:
                found[other.first] = found[one.first]
                waiting.append(other)
    return found


FOLLOWED = {"access": "::", "topology": "::", "interpolation": "::", "mesh": "<"}
"""Names of types that are likely to be those of variables, too, with what follows them as types."""
BEFORE_TYPE = frozenset(("const", "constexpr", "static", "inline", "typedef", "return", "namespace", "kernel", *SPACES))


def _names_type(syntax: Syntax, i: int) -> bool:
    """Return whether a name that may be that of a type is no variable."""
    if syntax[i] == "ray":
        return syntax.words[i + 1].is_name or syntax[i - 1] in ("const", *SPACES)
    if syntax[i] in FOLLOWED:
        return syntax[i + 1] == FOLLOWED[syntax[i]]
    if syntax.words[i - 1].is_name and syntax[i - 1] not in BEFORE_TYPE:
        return False
    is_type = syntax.words[i + 1].is_name or syntax[i + 1] in ("&", ">", "<", "*", "::", ",")
    return syntax[i - 1] not in (".", "[") and (syntax[i] != "sampler" or is_type)


def _name_of(syntax: Syntax, one: Declaration) -> str:
    """Return the name that a declaration declares, an empty one for a specialization or an operator."""
    if one.kind is Kind.CLASS:
        name = class_name(syntax, one)
        return "" if any(syntax.texts(i, i + 2) == [name, "<"] for i in range(one.first, one.opening)) else name
    if one.parameters > 0:
        return syntax[one.parameters - 1] if syntax.words[one.parameters - 1].is_name else ""
    first = one.first if syntax[one.first] != "template" else syntax.behind(one.first + 1)
    if syntax[first] == "using":
        return syntax[first + 1] if syntax[first + 2] == "=" else ""
    ends = ("=", "{", "[", ";")
    end = next((i for i in syntax.top(first, one.last + 1) if syntax[i] in ends and not syntax.is_attribute(i)), first)
    return syntax[end - 1] if syntax.words[end - 1].is_name else ""


def _declares(syntax: Syntax, i: int) -> bool:
    """Return whether a name follows a type, as that of a variable of a function does."""
    return syntax.words[i - 1].is_name and syntax[i - 1] not in ("return", "else", "case", "const", *SPACES)
