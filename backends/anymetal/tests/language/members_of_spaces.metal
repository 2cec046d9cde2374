// Members are overloaded on the address space of their object: operators, conversions, assignments, with other results.
// >>> x = np.arange(64, dtype=f4)
// >>> i = np.arange(4)
// >>> y = run((4,), x, np.arange(1, 8, dtype=f4), length=20, version="3.1").reshape(5, 4)
// >>> y[0] == x.reshape(8, 8)[3 - i, i] + np.array([20, 10, 20, 10])
// >>> y[1] == 8 * i + 2 + np.array([1, 2, 1, 2]) + 1000
// >>> y[2] == [1, 2, 3, 4]
// >>> y[3] == 9 * i + np.array([51, 27, 102, -29294])
// >>> y[4] == [9, -2, 3, 40]
// >>> processor_only()
// >>> check_accesses()
// >>> run((4,), x, np.arange(1, 8, dtype=f4), length=20, version="3.1").reshape(5, 4) == y
// >>> refused("S t = x;", "S t = x; t.a[0][0] = x.a[0].only();", "device .*this|'this'|object")
// >>> refused("z[i] = K", "z[i] = z.get(0); z[i] = K", "no member")
// >>> refused("a.scaled(100.0f)", "a.times(100.0f)", "no matching member function")
// >>> refused("threadgroup S w;", "threadgroup S w; threadgroup Number no;", "constructor that differs")
#include <metal_stdlib>
using namespace metal;

template <typename T, size_t N>
struct tint_array {
    const constant T& operator[](size_t i) const constant { return elements[i]; }
    device T& operator[](size_t i) device { return elements[i]; }
    const device T& operator[](size_t i) const device { return elements[i]; }
    thread T& operator[](size_t i) thread { return elements[i]; }
    const thread T& operator[](size_t i) const thread { return elements[i]; }
    threadgroup T& operator[](size_t i) threadgroup { return elements[i]; }
    const threadgroup T& operator[](size_t i) const threadgroup { return elements[i]; }
    float only() const { return 1; }
    T elements[N];
};
template <typename T, size_t Num>
struct spvUnsafeArray {
    T elements[Num ? Num : 1];
    thread T& operator [] (size_t pos) thread { return elements[pos]; }
    constexpr const thread T& operator [] (size_t pos) const thread { return elements[pos]; }
    device T& operator [] (size_t pos) device { return elements[pos]; }
    constexpr const device T& operator [] (size_t pos) const device { return elements[pos]; }
    constexpr const constant T& operator [] (size_t pos) const constant { return elements[pos]; }
    threadgroup T& operator [] (size_t pos) threadgroup { return elements[pos]; }
    constexpr const threadgroup T& operator [] (size_t pos) const threadgroup { return elements[pos]; }
};
struct Pair {
    float a, b;
    Pair() = default;
    Pair() threadgroup = default;
    float sum() const thread { return a + b; }
    float sum() const device { return a; }
};
struct S { tint_array<tint_array<float, 8>, 8> a; };
struct Out { spvUnsafeArray<float, 12> y; float more[8]; };
constant spvUnsafeArray<float, 2> K = spvUnsafeArray<float, 2>({10.0f, 20.0f});
constant spvUnsafeArray<spvUnsafeArray<float, 2>, 2> KK = spvUnsafeArray<spvUnsafeArray<float, 2>, 2>(
    {spvUnsafeArray<float, 2>({1.0, 2.0}), spvUnsafeArray<float, 2>({3.0, 4.0})});

struct A {
    float w, v, u[3];
    struct { float q; } s;
    union { float z; uint bits; };
    float inner(float x) const device { return v + x; }
    float inner(float x) const thread { return -v - x; }
    template <class T> T scaled(T x) const device { return T(v) * x; }
    template <class T> T scaled(T x) const thread { return x; }
    float all(float v) const device {
        float r = 0;
        for (uint i = 0; i < 3; i++) r += u[i];
        return r + v + this->v + inner(1) + scaled<float>(2) + w + s.q + z + (*this).v + this->inner(2);
    }
    float hides() const device {
        float r = v;
        {
            float v = 5, w = 6;
            r += v + w;
        }
        return r * v + w;
    }
    auto at() const device -> device const float* { return &v; }
    float times(float k) const constant;
    float times(float k) const device;
};
float A::times(float k) const device { return k * v; }
float A::times(float k) const constant { return k * v + 1; }

struct Number {
    float v;
    Number() thread : v(1) {}
    Number() threadgroup : v(2) {}
    operator float() const thread { return v; }
    operator float() const device { return v + 1; }
    void operator=(float x) thread { v = x; }
    void operator=(float x) device { v = 2 * x; }
};
template <class T> T converted(device Number& x) { return static_cast<T>(x) + T(x) + (T)x; }

kernel void f(device S& x, constant A& c, device Out& out, uint i [[thread_position_in_grid]]) {
    threadgroup S w;
    threadgroup spvUnsafeArray<float, 4> z;
    S t = x;
    spvUnsafeArray<float, 2> p = spvUnsafeArray<float, 2>({1.0f, 2.0f});
    tint_array<float, 4> q = tint_array<float, 4>{};
    q[i] = Pair{400, 600}.sum();
    w.a[i] = x.a[i];
    z[i] = K[i & 1];
    threadgroup_barrier(mem_flags::mem_threadgroup);
    out.y[i] = w.a[3 - i][i] + z[3 - i];
    out.y[4 + i] = t.a[i][2] + p[i & 1] + q[i];
    out.y[8 + i] = KK[i >> 1][i & 1];

    device A* d = (device A*)&out.more;
    device float* more = out.more;
    float result = 9 * i;
    threadgroup_barrier(mem_flags::mem_device);
    if (i == 0) {
        for (uint k = 0; k < 7; k++) more[k] = k + 1;
        A a = *d;
        float results[4] = {d->all(10), d->hides(), *d->at() + a.scaled(100.0f),
                            d->times(3) + 100 * c.times(3) + 10000 * a.inner(1)};
        device Number* n = (device Number*)more;
        Number m;
        n[0] = 2.0f;
        more[4] = converted<float>(n[0]) + float(m) - static_cast<float>(n[0]) - 2;
        n[1] = float(m);
        more[5] = -more[1] + float2(n[0], m).x - float3(m, float2(n[0]).x, 1).y;
        m = 3.0f;
        more[6] = m;
        more[7] = (i == 0 ? n[0] : n[1]) * 8.0f;
        for (uint k = 0; k < 4; k++) more[k] = results[k] + 9 * k;
    }
}
