"""What the front end makes of the tokens of a source: one row a construct, what it was and what it becomes."""

from __future__ import annotations

import functools
import itertools
import re
import sys
import time

import pytest

from anymetal import CompileError
from anymetal.frontend import kernels, rewrites
from anymetal.frontend.lexer import Places, unified
from anymetal.frontend.rewrites import Source, applied
from anymetal.frontend.syntax import Kind, Syntax


def after(text: str, *names: str, **values: str) -> str:
    source = Source(Syntax(text), values)
    edits = [edit for name in names for edit in getattr(rewrites, name)(source)]
    return applied(text, edits)


def words(text: str) -> str:
    return re.sub(r"\s+", " ", text).strip()


def test_structs_with_pointers():
    text = """
    struct alignas(8) Plain { float a; float b[2 * 3]; int f(device int *x); };
    struct alignas(16) [[maybe_unused]] In {
        device float *a [[id(0)]], *b = nullptr; constant int &c; using P = device int *; static int s; };
    typedef struct { In one, more[2]; float2 n; } Out;
    template <class T> struct Of { array<device T *, 4> list; metal::vec<T, 2> v; };"""
    found = kernels.structs_of(Syntax(text))
    assert found == {"In": ("a", "b", "c"), "Out": ("one.a", "one.b", "one.c", "more", "n"), "Of": ("list", "v")}


ROWS = {
    "array_data": [
        (
            "auto p = q.x.data(); int *r = q->data(), n = q.data(1);",
            "auto p = q.x.anymetal_elements; int *r = q->anymetal_elements, n = q.data(1);",
        ),
        ("struct A { int *data(); }; int *p = a.data();", "struct A { int *data(); }; int *p = a.data();"),
    ],
    "attributes": [
        ("void f(device float* x [[buffer(0)]]) { [[likely]] x[0] = 1; }", "void f(device float* x ) { x[0] = 1; }"),
        ("int a[b[0]];", "int a[b[0]];"),
    ],
    "kernel_words": [
        ("kernel void f() {}", "static void f() {}"),
        ("[[kernel]] void f(); kernel void f() {}", "static [[ ]] void f(); static void f() {}"),
        ("template <class T> kernel void f() {}", "template <class T> void f() {}"),
        ("struct A { static kernel void f() {} };", "struct A { static void f() {} };"),
    ],
    "threads": [
        (
            "template <int N> [[kernel, max_total_threads_per_threadgroup(N * 2)]] void f(device int* x) { x[0] = N; }",
            "template <int N> [[kernel, max_total_threads_per_threadgroup(N * 2)]] void f(device int* x) "
            "{ ANYMETAL_THREADS(N * 2) x[0] = N; }",
        ),
    ],
    "program_samplers": [
        ("constexpr sampler s(filter::linear);", "constant constexpr sampler s(filter::linear);"),
        (
            "constant sampler s; void f() { constexpr sampler t; }",
            "constant sampler s; void f() { constexpr sampler t; }",
        ),
    ],
    "render_functions": [
        ("vertex float4 v() { return 0; } int a;", "int a;"),
        ("[[fragment]] half4 v() { return 0; } int a;", "int a;"),
    ],
    "large_functions": [
        (
            f"template <class T> [[a]] void f() {{{' a;' * 10_001}}} void g() {{}}",
            f"template <class T> [[a]] ANYMETAL_LARGE void f() {{{' a;' * 10_001}}} void g() {{}}",
        )
    ],
    "unsupported": [
        ("using T = imageblock<int>; void f(thread T &t) {} void g(int t) {}", "void g(int t) {}"),
        ("struct sampler { int a; }; void f(sampler s) {}", "struct sampler { int a; }; void f(sampler s) {}"),
        ("void f(int sampler, int access) { a = sampler + access; }",) * 2,
    ],
    "constant_members": [
        (
            "struct S { static constant float a = 1, b[] = {2}; static constant int c; };",
            "struct S { constexpr static constant float a = 1, b[] = {2}; static constant int c; };",
        ),
        ("static constant float a = 1;", "static constant float a = 1;"),
    ],
    "constant_objects": [
        (
            "constant float2x2 m = {{1, 2}, {3, 4}}, *p; constant half3x2 n[2] = {{a, b}, half3x2(1)};",
            "constant float2x2 m = float2x2{{1, 2}, {3, 4}}, *p; constant half3x2 n[2] = {half3x2{a, b}, half3x2(1)};",
        ),
        (
            "struct S { S(int a); }; struct P { int a; }; constant S s(1); constant S t{1}; constant P p = {1};",
            "struct S { S(int a); }; struct P { int a; }; constant S s = S(1); constant S t = S{1}; "
            "constant P p = {1};",
        ),
    ],
    "thread_pointees": [
        ("thread const device float *p[2]; thread float *q;", "const device float *p[2]; thread float *q;"),
    ],
    "linkage": [
        ('extern "C" { int a; } extern "C" int b; extern int c;', "int a; int b; extern int c;"),
    ],
    "instantiations": [
        ('template [[host_name("a")]] [[kernel]] decltype(f<4>) f<4>; int x;', "int x;"),
        ("template <int N> void f();", "template <int N> void f();"),
    ],
    "function_constants": [
        (
            "constant int n [[function_constant(0)]]; int m = is_function_constant_defined(n) ? n : 4;",
            "constexpr constant int n = anymetal::construct<int>(3); int m = true ? n : 4;",
        ),
        (
            "constant bool b [[function_constant(1)]]; bool c = is_function_constant_defined(b);",
            "extern constant bool b; bool c = false;",
        ),
    ],
    "locals_of_threadgroups": [
        (
            "void f() { threadgroup float a[8], b; constant int w[] = {1}; }",
            "void f() { ANYMETAL_ZONE static ANYMETAL_LOCAL threadgroup float a[8]"
            "; ANYMETAL_ZONE static ANYMETAL_LOCAL threadgroup float b; static constant int w[] = {1}; }",
        ),
        (
            "void f() { if (x) { threadgroup Tile<float, 2 * 4> t; } for (;;) threadgroup int q; }",
            "void f() { if (x) { ANYMETAL_ZONE static ANYMETAL_LOCAL threadgroup Tile<float, 2 * 4> t; } "
            "for (;;) static ANYMETAL_LOCAL threadgroup int q; }",
        ),
        (
            "void f() { threadgroup int* p = a; constant int& z = *w; using T = threadgroup int; g((device T*)p); }",
            "void f() { threadgroup int* p = a; constant int& z = *w; using T = threadgroup int; g((device T*)p); }",
        ),
        (
            "void f() { alignas(16) threadgroup T a[2 * N]; threadgroup vec<T, 4> v[2], w; }",
            "void f() { ANYMETAL_ZONE static ANYMETAL_LOCAL alignas(16) threadgroup T a[2 * N]; ANYMETAL_ZONE static "
            "ANYMETAL_LOCAL threadgroup vec<T, 4> v[2]; ANYMETAL_ZONE static ANYMETAL_LOCAL threadgroup vec < T , 4 > "
            "w; }",
        ),
    ],
    "private_variables": [
        (
            "constexpr float f(float a) { float b; b = a; return b; }",
            "constexpr float f(float a) { float b; b = a; return b; }",
        ),
        (
            "void f() { float a[8], b, c[2][N]; vec<T, 2> d[2]; if (x) { thread T e[M]; } }",
            "void f() { ANYMETAL_ALIGNED(float) float a[8], b, c[2][N]; ANYMETAL_UNSET(a, 0) ANYMETAL_UNSET_ONE(b, 0) "
            "ANYMETAL_UNSET(c, 0) ANYMETAL_ALIGNED(vec < T , 2 >) vec<T, 2> d[2]; "
            "ANYMETAL_UNSET(d, 0) if (x) { ANYMETAL_ALIGNED(thread T) thread T e[M]; ANYMETAL_UNSET(e, 0) } }",
        ),
        (
            "float2 f() { float2 v; S s; v.x = a.v; v[i] += v.x; g(v, &s); f(v); return v; }",
            "float2 f() { float2 v; ANYMETAL_COMPONENTS(v) S s; ANYMETAL_UNSET(s, 0) ANYMETAL_SET(v, 1).x = a.v; "
            "v[ANYMETAL_USED_AT(v, i)] += ANYMETAL_USED(v, 1).x; g(ANYMETAL_USED(v, 15), &s); f(ANYMETAL_SET(v, 15)); "
            "return ANYMETAL_USED(v, 15); }",
        ),
        (
            "void f() { half4 v; thread half4 &w = v; S s; return s; }",
            "void f() { half4 v; ANYMETAL_UNSET_ONE(v, 0) thread half4 &w = v; S s; ANYMETAL_UNSET_ONE(s, 1) return s; "
            "}",
        ),
        (
            "void f() { struct S s; uint a, b = g(1), c; g(a, &c); if (x) T<int> d; N::T e; }",
            "void f() { struct S s; ANYMETAL_UNSET_ONE(s, 0) uint a, b = g(1), c; ANYMETAL_UNSET(a, 0) "
            "ANYMETAL_UNSET(c, 0) g(a, &c); if (x) T<int> d; N::T e; ANYMETAL_UNSET_ONE(e, 0) }",
        ),
        (
            "void f() { int a[2]; switch (n) { case 0: { int b[2]; } } }",
            "void f() { ANYMETAL_ALIGNED(int) int a[2]; ANYMETAL_UNSET(a, 0) switch (n) { case 0: { "
            "ANYMETAL_ALIGNED(int) int b[2]; ANYMETAL_UNSET(b, 0) } } }",
        ),
        *(
            (text, text)
            for text in (
                "void f() { ANYMETAL_ALIGNED(float) float a[2] = {}; int *c[2]; int (*d)[2]; "
                "ANYMETAL_ALIGNED(int) int e[] = {1}; a[1] = 2; x.y[2]; g(a[1]); }",
                "void f() { struct S; float a = 1, b(2), c{3}; using namespace N; typedef int I; T x = {}; f(a); }",
                "void f() { struct S { float a[2]; }; constexpr int b[2]; threadgroup T c[2]; return a[0]; }",
                "void f() { switch (n) { case 0: float a[2]; default: break; } for (int i[2]; ;) float b[2]; }",
                "float a[2]; struct S { float b[2]; };",
            )
        ),
    ],
    "member_spaces": [
        (
            "struct S { float g() const thread { return v; } float g() const device { return v; } float v; };",
            "struct S { float g() const { return v; } "
            "float g(this const device S &anymetal_object) { return anymetal_object.v; } float v; };",
        ),
        (
            "struct S { S(float a) thread : x{a} {} S(float a) constant : x{a} {} S(int a) {} S(int a) device {} };",
            "struct S { S(float a) : x{a} {} S(int a) {} };",
        ),
        (
            "struct S { T& operator[](int i) device; const T& operator[](int i) const device; };",
            "struct S { T& operator[](this device S &anymetal_object, int i) ; "
            "const T& operator[](this const device S &anymetal_object, int i) ; };",
        ),
        (
            "template <int N> struct S { float g() constant; float a, b[N], *c = 0; }; "
            "template <int N> float S<N>::g() constant { return a + b[0] + x.a + *c + N; }",
            "template <int N> struct S { float g(this constant S &anymetal_object) ; float a, b[N], *c = 0; }; "
            "template <int N> float S<N>::g(this constant S<N> &anymetal_object) "
            "{ return anymetal_object.a + anymetal_object.b[0] + x.a + *anymetal_object.c + N; }",
        ),
        *(
            (
                f"struct S {{ void g({parameters}) device {{ {body} }} float a; union {{ int b; }}; void h(); }};",
                f"struct S {{ void g(this device S &anymetal_object{', ' * bool(parameters)}{parameters}) "
                f"{{ {expected} }} float a; union {{ int b; }}; void h(); }};",
            )
            for parameters, body, expected in (
                (
                    "",
                    "h(); this->h(); h = b; a;",
                    "anymetal_object.h(); (&anymetal_object)->h(); h = anymetal_object.b; anymetal_object.a;",
                ),
                ("float a", "x = a + this->a;", "x = a + (&anymetal_object)->a;"),
                ("", "{ int a = 1, b; a = b; } a = 2;", "{ int a = 1, b; a = b; } anymetal_object.a = 2;"),
                ("", "for (N::T<int> b = 0; b < a; b++) {}", "for (N::T<int> b = 0; b < anymetal_object.a; b++) {}"),
                ("", "return vec<int, 2>(a, b);", "return vec<int, 2>(anymetal_object.a, anymetal_object.b);"),
                ("", "for (; x & a;) {}", "for (; x & anymetal_object.a;) {}"),
                (
                    "",
                    "auto f = [&](int b) { return a + b; };",
                    "auto f = [&](int b) { return anymetal_object.a + b; };",
                ),
                ("", "device int *a = x; *a = b;", "device int *a = x; *a = anymetal_object.b;"),
                ("", "auto &[a, c] = x; return a;", "auto &[a, c] = x; return a;"),
                (
                    "",
                    "if (x * a > 2) c ? a : b;",
                    "if (x * anymetal_object.a > 2) c ? anymetal_object.a : anymetal_object.b;",
                ),
            )
        ),
        (
            "typedef struct { float g() device { return a; } float a; } S;",
            "typedef struct anymetal_unnamed_2 { float g(this device anymetal_unnamed_2 &anymetal_object) "
            "{ return anymetal_object.a; } float a; } S;",
        ),
        (
            "struct A { A() = default; ~A() = default; A() threadgroup = default; float g() device { return 1; } };",
            "struct A { float g(this device A &anymetal_object) { return 1; } };",
        ),
        (
            "struct A { float a; }; struct B : public A { void g(void) device { a = 1; } "
            "B &operator=(B x) device = default; };",
            "struct A { float a; }; struct B : public A { void g(this device B &anymetal_object) "
            "{ anymetal_object.a = 1; } B &operator=(const B &) = default; "
            "B &operator=(this device B &anymetal_object, B x) { "
            "static_cast<B &>(anymetal_object) = static_cast<const B &>(x); "
            "return anymetal_object; } };",
        ),
    ],
    "thread_members": [
        (
            "struct S { S(); ~S(); int f() const; int g() { return 1; } int h() device; static int i(); "
            "static_assert(1); int j, k = f(), (*p)(int); typedef int F(int); friend int l(S s) { return 1; } "
            "S &operator=(S s) = default; bool operator()() "
            "const noexcept; }; int S::f() const { return 1; }",
            "struct S { S(); ~S(); int f() const thread; int g() thread { return 1; } int h() device; static int i(); "
            "static_assert(1); int j, k = f(), (*p)(int); typedef int F(int); friend int l(S s) { return 1; } "
            "S &operator=(S s) = default; "
            "bool operator()() const thread noexcept; }; int S::f() const thread { return 1; }",
        ),
    ],
    "array_parameters": [
        ("void f(device float x[4], int n[2]);", "void f(device float *x, int n[2]);"),
        ("void f(threadgroup half y[2][8], thread T (&z)[4]);", "void f(threadgroup half (*y)[8], thread T (&z)[4]);"),
    ],
    "bool_vectors": [
        ("void f(vec<bool, 2> v);", "void f(anymetal_bools<metal::vec<bool, 2>> v);"),
        (
            "template <class T> void f(vec<T, 2> a) { vec<T, 2> b; }",
            "template <class T> void f(vec<T, 2> a) { typename anymetal::storable<vec<T, 2>>::type b; }",
        ),
        ("typedef metal::vec<T, 2> V;", "typedef typename anymetal::storable<metal::vec<T, 2>>::type V;"),
        ("using V = vec<T, 2>;", "using V = typename anymetal::storable<vec<T, 2>>::type;"),
        (
            "template <class T> using V = vec<T, 2>; V<bool> v; typedef typename A<U, 3>::template V<U> W;",
            "template <class T> using V = vec<T, 2>; typename anymetal::storable<V<bool>>::type v; "
            "typedef typename anymetal::storable<typename A<U, 3>::template V<U>>::type W;",
        ),
        ("template <class T, int N> void f(vec<T, N> v);", "template <class T, int N> void f(vec<T, N> v);"),
    ],
    "integers_for_bools": [("void f(vec<bool, 2> v);", "void f(vec<int , 2> v);")],
    "truths": [
        (
            "template <class T> T g(T v); void f() { g(a < b); }",
            "template <class T> T g(T v); void f() { g(anymetal::bools(a < b)); }",
        ),
        (
            "void g(thread bool2 &v); void f() { bool2 b; g(b); }",
            "void g(thread bool2 &v); void f() { bool2 b; g(b); }",
        ),
        ("void f() { g(float4(a > b)); }", "void f() { g(float4(anymetal::zero_or_one(a > b))); }"),
        ("void f() { g((float4)(a != b)); }", "void f() { g((float4)(anymetal::zero_or_one(a != b))); }"),
        ("void f() { bool4 b; g(int4(b)); }", "void f() { bool4 b; g(int4(anymetal::zero_or_one(b))); }"),
        ("void f() { bool4 b; int4 a(b); }", "void f() { bool4 b; int4 a(b); }"),
        ("void f() { g(int4((a < b) & !c)); }", "void f() { g(int4(anymetal::zero_or_one((a < b) & !c))); }"),
        ("void f() { g(int4(a << b)); }", "void f() { g(int4(a << b)); }"),
        ("void f() { g(int4(a < b ? c : d)); }", "void f() { g(int4(a < b ? c : d)); }"),
        ("void f() { g(bool4(a < b)); }", "void f() { g(bool4(a < b)); }"),
    ],
    "lifetimes": [
        (
            "T *f(T x) { p = &x; { T v = x, w[2] = {v}; p = &v; q = w + 1; g(&v); a = w[1]; } return &x; }",
            'T *f(T x) { ANYMETAL_LIFE(x, "x") p = &x; { T v = x, w[2] = {v}; '
            'ANYMETAL_LIFE(v, "v") ANYMETAL_LIFE(w, "w") p = &v; q = w + 1; g(&v); a = w[1]; } return &x; }',
        ),
        (
            "void f() { { T h = g(), n = g(&h, h), *p = &n, *q = p; r = q; } }",
            'void f() { { T h = g(), n = g(&h, h), *p = &n, *q = p; ANYMETAL_LIFE(n, "n") r = q; } }',
        ),
        (
            "void f() { T x = x; T *p = &x; { T *q = q; q = p; } }",
            "void f() { T x = x; T *p = &x; { T *q = q; q = p; } }",
        ),
        (
            "void f() { for (int k = 0; k < 2; k++) p = &k; }",
            'void f() { for (int k = 0; k < 2; k++) { ANYMETAL_LIFE(k, "k") p = &k;} }',
        ),
        (
            "void f(device T *x) { T v; T *p = &v; { device T *q = &x[0]; r = &q; } x = a & v; }",
            "void f(device T *x) { T v; T *p = &v; { device T *q = &x[0]; r = &q; } x = a & v; }",
        ),
    ],
    "lanes": [
        ("void f(int2 a) { b = k*a + c; }", "void f(int2 a) { b = k ANYMETAL_LANES(*) a  ANYMETAL_LANES(+)  c; }"),
        (
            "void f(uint2 a) { a.xy <<= 2; x >> a.x; }",
            "void f(uint2 a) { a.xy  = a.xy ANYMETAL_LANES(<<) ( 2); x >> a.x; }",
        ),
        (
            "void f() { int4 *p[2], const *q[2]; *p[0] * *q[1]; }",
            "void f() { int4 *p[2], const *q[2]; *p[0] ANYMETAL_LANES(*) *q[1]; }",
        ),
        (
            "void f(device int4 *p, float4 g) { min(p[0], 3) * 2 + 1; 1 - abs(p[1]); min(g.x, 1) * 2; }",
            "void f(device int4 *p, float4 g) { min(p[0], 3) ANYMETAL_LANES(*) 2 ANYMETAL_LANES(+) 1; "
            "1 ANYMETAL_LANES(-) abs(p[1]); min(g.x, 1) * 2; }",
        ),
        ("void f(uint2 a) { a.x <<= 2; a++; --a; }", "void f(uint2 a) { a.x <<= 2; a++; --a; }"),
        (
            "using V = int4; void f(device const V *const p) { p->xy += 1; *p * 2 - -p[1]; (*p) + p; }",
            "using V = int4; void f(device const V *const p) { p->xy = p->xy ANYMETAL_LANES(+) ( 1); "
            "*p ANYMETAL_LANES(*) 2 ANYMETAL_LANES(-) ANYMETAL_MINUS p[1]; (*p) ANYMETAL_LANES(+) p; }",
        ),
        ("void f() { x = p->n * int2(1, 2); }", "void f() { x = p->n  ANYMETAL_LANES(*)  int2(1, 2); }"),
        (
            "void f(vec<short, 2> a[2]) { a[1] -= -a[0]; }",
            "void f(vec<short, 2> a[2]) { a[1]  ANYMETAL_LANES(-=)  ANYMETAL_MINUS a[0]; }",
        ),
        (
            "void f(float2 a) { int2 b; a * b; g<a, b>(c); *b; (int2)-b; }",
            "void f(float2 a) { int2 b; a  ANYMETAL_LANES(*)  b; g<a, b>(c); *b; (int2)-b; }",
        ),
    ],
    "components": [
        ("void f() { a = b.c[i].x; d.y = e[0]; }", "void f() { a = ANYMETAL_LVALUE(b.c[i]).x; d.y = e[0]; }"),
        ("void f() { p->a[1].x = 0; }", "void f() { ANYMETAL_LVALUE(ANYMETAL_LVALUE(*p).a[1]).x = 0; }"),
        (
            "void f() { ((T *)p)->xy = q->n->x; }",
            "void f() { ANYMETAL_LVALUE(*((T *)p)).xy = ANYMETAL_LVALUE(*q->n).x; }",
        ),
        ("void f() { if (a) (p)[1].x = 2; g<T>(b)[1].x; }", "void f() { if (a) (p)[1].x = 2; g<T>(b)[1].x; }"),
    ],
    "constructors": [
        ("void f() { g(float4(1, a.xy, 2)); }", "void f() { g(anymetal::construct<float4>(1, a.xy, 2)); }"),
        ("void f() { return metal::half2(1); }", "void f() { return anymetal::construct<metal::half2>(1); }"),
        ("void f() { a = vec<T, 4>(b); }", "void f() { a = anymetal::construct<vec<T, 4>>(b); }"),
        ("using V = float4; void f() { a = V(b); }", "using V = float4; void f() { a = anymetal::construct<V>(b); }"),
        ("typedef half4 V; V f(int a);", "typedef half4 V; V f(int a);"),
        (
            "template <class T> T f(T x) { return T(x); } void g() { T(x); }",
            "template <class T> T f(T x) { return anymetal::construct<T>(x); } void g() { T(x); }",
        ),
        ("void f() { float4 v(1, 2), w; }", "void f() { float4 v = anymetal::construct<float4>(1, 2), w; }"),
        ("struct A { float4 v(float4 b); };", "struct A { float4 v(float4 b); };"),
        ("float4 (*p)(int);", "float4 (*p)(int);"),
        ("struct A { operator float4() const; };", "struct A { operator float4() const; };"),
        (
            "using B = A; struct C : B { C(float2 x) : B(x), y(float2(0)) {} };",
            "using B = A; struct C : B { C(float2 x) : B(x), y(anymetal::construct<float2>(0)) {} };",
        ),
    ],
    "casts": [
        ("void f() { a = (half4)b; }", "void f() { a = anymetal::castto<half4>() ->* b; }"),
        ("void f() { a = (float4)-b; }", "void f() { a = anymetal::castto<float4>() ->* -b; }"),
        ("void f() { a = (b) * 2 + sizeof(float4) * 2; }", "void f() { a = (b) * 2 + sizeof(float4) * 2; }"),
        (
            "void f() { static_cast<T>(b); static_cast<device T*>(b); }",
            "void f() { anymetal::cast<T>(b); static_cast<device T*>(b); }",
        ),
        ("struct A { T f(float4) const; };", "struct A { T f(float4) const; };"),
    ],
    "braces": [
        ("void f() { a = ({ auto b = c; b; }); }", "void f() { a = ({ auto b = c; b; }); }"),
        ("void f() { g({1, 2}, {}); }", "void f() { g(anymetal::braces(1, 2), {}); }"),
        ("void f() { S s = {1, 2}; g(S{1, 2}); }", "void f() { S s = {1, 2}; g(S{1, 2}); }"),
    ],
    "conditionals": [
        ("void f() { a = c ? x[i] : y; }", "void f() { a = c ? anymetal::loaded(x[i]) : anymetal::loaded(y); }"),
        (
            "void f() { a = c ? x : y; b = c ? true : *p; }",
            "void f() { a = c ? x : y; b = c ? true : anymetal::loaded(*p); }",
        ),
        (
            "void f(device S &x) { a = c ? x : d ? y : *p; S &r = c ? x : y; (c ? x : y).a[0] += 1; }",
            "void f(device S &x) { a = c ? anymetal::loaded(x) : d ? anymetal::loaded(y) : anymetal::loaded(*p); "
            "S &r = c ? x : y; (c ? x : y).a[0] += 1; }",
        ),
        ("void f() { a = c ? p->q[i][j] : 0; }", "void f() { a = c ? anymetal::loaded(p->q[i][j]) : 0; }"),
        ("void f() { a = c ? x[i] + 1 : &x[i]; }", "void f() { a = c ? x[i] + 1 : &x[i]; }"),
        ("void f() { a = c ? g(x[i]) : op.init; }", "void f() { a = c ? g(x[i]) : anymetal::loaded(op.init); }"),
        (
            "void f() { a = c ? g(0) : x; b = c ? y : p.q + 1; }",
            "void f() { a = c ? g(0) : anymetal::loaded(x); b = c ? anymetal::loaded(y) : p.q + 1; }",
        ),
    ],
    "strings": [
        ('void f() { g("a" "b", 1); }', 'void f() { g((constant char *)"a" "b", 1); }'),
        ('constant char a[] = "b"; static_assert(1, "c");', 'constant char a[] = "b"; static_assert(1, "c");'),
    ],
    "shared_references": [
        (
            "void f() { alignas(16) threadgroup T a[N == 2 ? 1 : N][4], b; threadgroup int *p = c; }",
            "void f() { ANYMETAL_SHARED(a, T [(N == 2 ? 1 : N)][(4)]); ANYMETAL_SHARED(b, T ); threadgroup int *p = c; "
            "}",
        ),
        ("void f() { threadgroup float a[8] = {0}; }", "void f() { ANYMETAL_SHARED(a, float [(8)]); }"),
    ],
    "template_kernels": [
        ("[[kernel]] void f() {}", "kernel [[kernel]] void f() {}"),
        ("template <class T> kernel void f() {}", "template <class T> void f() {}"),
        ("kernel void f(array<device int *, 2> x) {}", "void f(array<device int *, 2> x) {}"),
    ],
}


@pytest.mark.parametrize(("name", "before", "expected"), [(name, *row) for name, rows in ROWS.items() for row in rows])
def test_rewrites(name, before, expected):
    assert words(after(before, name, n="3")) == words(expected)


def test_every_rewrite_has_a_row_and_a_reason():
    used = {one.__name__: one.__doc__ for one in (*rewrites.REWRITES, *rewrites.STRICT)}
    assert used.keys() == ROWS.keys()
    assert all(used.values())


def test_lines_stay():
    text = "template <class T>\nkernel void f(device T* x [[\nbuffer(0)]]) { }\n"
    text += 'template [[host_name("a")]]\nkernel void f<int>(\ndevice int*);\nint last;'
    found = after(text, *(one.__name__ for one in rewrites.REWRITES))
    assert found.split("\n").index("int last;") == text.split("\n").index("int last;")


@pytest.mark.parametrize("following", ["kernel void g() {}", "[[kernel]] void g() {}", "template void h<1>();"])
def test_an_entry_stays_if_what_follows_is_removed(following):
    syntax = Syntax(f"template <int N> kernel void h() {{}} kernel void f() {{}}{following}")
    at = kernels.kernels(syntax)["f"].at
    assert " ENTRY" in rewrites.rewritten(Source(syntax), rewrites.Edit(at, at, " ENTRY", is_behind=True))


def test_removed_text_keeps_the_markers_of_lines():
    text = 'template\n# 7 "a.h"\nvoid f<int>();\nint last;'
    assert after(text, "instantiations") == '\n# 7 "a.h"\n\nint last;'


@pytest.mark.parametrize(
    ("text", "kinds"),
    [
        (
            "namespace a { struct B { void f(); int x = 1; }; void g() { if (1) {} } }",
            "OTHER OTHER CLASS FUNCTION NAMESPACE",
        ),
        ("struct alignas(16) A { A() : x{1}, y(2) {} };", "FUNCTION CLASS"),
        ("constant float w[] = {1, f(2)}; constexpr int n{3};", "OTHER OTHER"),
        ("template <class T, class = enable_if_t<(sizeof(T) > 2)>> inline T f(T x) { return x; }", "FUNCTION"),
        ("typedef struct { int x; } A, *B; enum class E : uint { a, b };", "OTHER CLASS CLASS"),
        (
            "struct S { bool operator()(int a) const { return a < 1 && 2 > a; } operator float4() { return 0; } };",
            "FUNCTION FUNCTION CLASS",
        ),
        ("struct A f() { return {}; } auto g = [](int x) { return x; };", "FUNCTION OTHER"),
        ('extern "C" { int f(); }', "OTHER NAMESPACE"),
    ],
)
def test_declarations(text, kinds):
    assert [one.kind for one in Syntax(text).declarations] == [Kind[kind] for kind in kinds.split()]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("void f() { (] }", "`]` closes no bracket"),
        ("void f() {", "`{` is never closed"),
        ("}", "`}` closes no bracket"),
        ("(" * 300 + ")" * 300, "brackets are nested more than 256 deep"),
    ],
)
def test_brackets(text, message):
    with pytest.raises(CompileError, match=re.escape(message)):
        Syntax(text)


KERNELS = """
namespace ns { kernel void inside(device float* a) {} }
[[kernel]] void plain(device const float* x, constant uint& n [[buffer(3)]], device float* y,
                      uint i [[thread_position_in_grid]]) {}
[[host_name("named")]] kernel void hosted(threadgroup half* t [[threadgroup(1)]],
                                          uint3 p [[thread_position_in_threadgroup]]) {}
template <class T, int N> [[kernel, max_total_threads_per_threadgroup(N)]] void f(device T* x [[buffer(N)]]) {}
template [[host_name("f_" "4")]] [[kernel]] decltype(f<float, 4>) f<float, 4>;
template <class T> kernel void g(device T* x, device int* m [[buffer(1), function_constant(has)]]) {}
template [[host_name("g_half")]] kernel void g(device half* x, device int*);
typedef decltype(g<float>) g_t;
template [[host_name("g_float")]] kernel g_t ns::g<float>;
struct A { static kernel void member(device int* x) {} };
"""


def test_kernels():
    found = kernels.kernels(Syntax(KERNELS))
    assert list(found) == ["inside", "plain", "named", "f_4", "g_half", "g_float", "member"]
    assert [(p.kind, p.index, p.is_reference) for p in found["plain"].parameters] == [
        ("buffer", 0, False), ("buffer", 3, True), ("buffer", 1, False), ("value", None, False)
    ]  # fmt: skip
    assert [(p.kind, p.index) for p in found["named"].parameters] == [("threadgroup", 1), ("value", None)]
    assert found["named"].call == "::hosted"
    assert found["f_4"].call == "::f<float , 4>"
    assert found["f_4"].names_threads
    assert (found["f_4"].parameters[0].index, found["f_4"].parameters[0].value) == (None, "N")
    assert found["g_half"].call == "((void (*)( device half *x , device int * ))::g)"
    assert found["g_half"].parameters[1].condition == "has"
    assert found["g_float"].call == "::ns::g<float>"
    assert found["named"].axes == 3


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("kernel int f() { return 1; }", "kernel `f` must return void"),
        ("kernel void f() {} kernel void f(device int* x) {}", "there are two kernels `f`"),
        ("kernel void f(device int* x [[buffer(1)]], device int* y [[buffer(1)]]) {}", "uses a buffer index twice: 1"),
        ("kernel void f(device int* x [[buffer(31)]]) {}", "the buffer index is above 30"),
        ("kernel void f(int x) {}", "needs an attribute such as [[buffer(0)]]"),
        ("kernel void f(float x [[thread_position_in_grid]]) {}", "must have one of the types uint, ushort"),
        ('template [[host_name("a")]] kernel void f<int>();', "there is no kernel template `f` to instantiate"),
        ("[[max_total_threads_per_threadgroup]] kernel void f() {}", "needs a number"),
        ("constant [[function_constant(0)]];", "a function constant is `constant TYPE name"),
    ],
)
def test_illegal_kernels(text, message):
    syntax = Syntax(text)
    with pytest.raises(CompileError, match=re.escape(message)):
        list(kernels.constants(syntax)) if kernels.kernels(syntax) == {} else None


def test_parameters_that_no_runtime_has():
    kernel = kernels.kernels(Syntax("kernel void f(float4 t [[stage_in]]) {}"))["f"]
    message = "parameter `float4 t` of kernel `f`: inputs of a stage are not supported"
    with pytest.raises(CompileError, match=re.escape(message)):
        kernels.supported(kernel)


def test_the_walk_over_tokens_ends_with_a_result_or_an_error():
    """Whatever the tokens are: parts of a source in any order."""
    import random

    parts = re.findall(
        r"\w+|\S", KERNELS + " threadgroup constant T(x) ? [ ] { } < > ( ) ; : :: is_function_constant_defined"
    )
    for seed in range(150):
        chosen = random.Random(seed).choices(parts, k=40)
        try:
            syntax = Syntax(unified(" ".join(chosen)))
            kernels.kernels(syntax)
            rewrites.rewritten(Source(syntax))
            rewrites.strictly_rewritten(Source(syntax))
        except CompileError:
            continue


def test_positions_outside_of_a_source_have_no_text():
    syntax = Syntax("int x;")
    assert [syntax[i] for i in (-8, -1, 0, 2, 3, 10)] == ["", "", "int", ";", "", ""]


COLUMNS = """void f(device float *x) {
  float2 v; v.x = c ? x[i] : /* b */ y; bool2 b = v > 1 && v < 2; int4 j = 0; g(j + j);
# 40 "other.h"
  float4 w = (half4)v; /**/ w = c ? x[1] : x[2];
}"""


def test_what_follows_an_edit_keeps_its_line_and_column():
    """Each name of the source is where it was, for the compiler, which counts from the last marker on."""
    text = COLUMNS.replace("/* b */", "       ").replace("/**/", "    ")
    after_edits = rewrites.rewritten(Source(Syntax(text)))
    assert after_edits.count("anymetal::loaded(") == 4
    found = [{(word.text, places.line(word.at), places.column(word.at)) for word in Syntax(part).words if word.is_name}
             for part in (text, after_edits) for places in [Places(part)]]  # fmt: skip
    assert {row for row in found[0] - found[1] if row[0] not in ("v", "half4")} == set()


LONG = {
    "numbers": ("", "float v{0}; v{0} = y[0]; "),
    "vectors": ("", "float4 v{0}; v{0}.x = y[0]; "),
    "integer vectors": ("", "int4 w{0} = v * v + (v << 2); "),
    "vectors of bool": ("", "b = b && (v < 3); "),
    "operators": ("", "a <"),
    "conditionals": ("", "b.x ? y[{0}] : "),
    "members that are constants": ("struct B{0} {{ B{0}(int); static constant int a = 1; }}; constant B{0} b(1); ", ""),
    "image blocks": ("void f{0}(imageblock<float> t) {{ g{0}(t); }} ", ""),
    "textures": ("void f{0}(texture2d<float> t) {{ g{0}(t); }} struct A{0} {{ sampler s; }}; ", ""),
    "templates": ("template <typename T> T f{0}(T a) {{ T d; d = a; return d; }} ", ""),
    "classes": ("struct A{0} {{ int a; int at() const device {{ return a; }} }}; ", ""),
    "kernels": ("kernel void k{0}(device float *y) {{ y[0] = 1; }} ", ""),
}  # fmt: skip


@pytest.mark.parametrize("name", LONG)
def test_the_front_end_is_linear_in_the_source(name):
    def steps(count: int) -> int:
        before, inside = ("".join(part.format(i) for i in range(count)) for part in LONG[name])
        text = f"{before} kernel void k(device float *y) {{ int4 v; bool4 b; int a = {inside} a; }}"
        found = 0

        def trace(*_):
            nonlocal found
            found += 1
            return trace

        former = sys.gettrace()
        sys.settrace(trace)
        try:
            source = Source(Syntax(text))
            kernels.kernels(source.syntax)
            rewrites.rewritten(source)
            rewrites.strictly_rewritten(source)
        finally:
            sys.settrace(former)
        return found

    assert steps(160) < 5 * steps(40)


def test_the_front_end_has_the_limit_of_a_compilation(monkeypatch):
    source = Source(Syntax("kernel void f(device float *y) { float4 a; y[0] = a.x; }"))
    monkeypatch.setenv("ANYMETAL_COMPILE_SECONDS", "3")
    monkeypatch.setattr(time, "thread_time", functools.partial(next, itertools.count(0, 2)))
    wanted = re.escape("the front end took more than 3 seconds of processor time (ANYMETAL_COMPILE_SECONDS)")
    with pytest.raises(CompileError, match=wanted):
        rewrites.rewritten(source)
    with pytest.raises(CompileError, match=wanted):
        Syntax(" ".join(["a"] * 300))
