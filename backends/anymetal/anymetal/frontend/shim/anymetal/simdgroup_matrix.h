// <metal_simdgroup_matrix>: matrices of eight columns and rows that the lanes of a simdgroup hold together. Each lane
// has two components side by side.
#pragma once

namespace metal {

template <class T, int C, int R = C> struct simdgroup_matrix {
    static_assert(C == 8 && R == 8, "a simdgroup_matrix has 8 columns and 8 rows");
    static_assert(anymetal::is_floating<T>, "a simdgroup_matrix is of float, half or bfloat");
    typedef vec<T, 2> storage_type;
    storage_type anymetal_elements;

    simdgroup_matrix() = default;
    explicit simdgroup_matrix(T diagonal);
    thread storage_type &thread_elements() ANYMETAL_OF_THREAD { return anymetal_elements; }
    const thread storage_type &thread_elements() const ANYMETAL_OF_THREAD { return anymetal_elements; }
};

typedef simdgroup_matrix<float, 8> simdgroup_float8x8;
typedef simdgroup_matrix<half, 8> simdgroup_half8x8;
#if __METAL_VERSION__ >= 310
typedef simdgroup_matrix<bfloat, 8> simdgroup_bfloat8x8;
#endif

} // namespace metal

namespace anymetal {

// The place of a lane's first component.
inline ulong matrix_row(uint lane) { return (lane >> 2 & 4) + (lane >> 1 & 3); }
inline ulong matrix_column(uint lane) { return (lane >> 1 & 4) + (lane << 1 & 2); }
// The lane that has a component.
inline uint matrix_lane(ulong row, ulong column) {
    return uint((row & 4) << 2 | (column & 4) << 1 | (row & 3) << 1 | (column & 2) >> 1);
}
// Where a lane's components lie in memory.
struct matrix_place {
    ulong first, step;
    matrix_place(ulong elements_per_row, ulong2 origin, bool transposed) {
        const ulong row = origin.y + matrix_row(lane()), column = origin.x + matrix_column(lane());
        first = transposed ? column * elements_per_row + row : row * elements_per_row + column;
        step = transposed ? elements_per_row : 1;
    }
};
#ifdef ANYMETAL_STRICT // no thread memory
template <class P> struct memory {};
template <class T> struct memory<device T *> { typedef T type; };
template <class T> struct memory<threadgroup T *> { typedef T type; };
template <class T> struct memory<constant T *> { typedef T type; };
#else
template <class P> struct memory { typedef metal::remove_cvref_t<metal::remove_pointer_t<P>> type; };
#endif
template <class P, class T> using if_points_to = enable<__is_same(metal::remove_cv_t<typename memory<P>::type>, T)>;

} // namespace anymetal

namespace metal {

template <class T, int C, int R> simdgroup_matrix<T, C, R>::simdgroup_matrix(T diagonal) {
    const ulong row = anymetal::matrix_row(anymetal::lane()), column = anymetal::matrix_column(anymetal::lane());
    ANYMETAL_UNROLLED for (uint i = 0; i < 2; i++) anymetal_elements[i] = row == column + i ? diagonal : T(0.0f);
}
template <class T, int C, int R = C> inline simdgroup_matrix<T, C, R> make_diagonal_simdgroup_matrix(T diagonal) {
    return simdgroup_matrix<T, C, R>(diagonal);
}
template <class T, int C, int R = C> inline simdgroup_matrix<T, C, R> make_filled_simdgroup_matrix(T value) {
    simdgroup_matrix<T, C, R> m;
    m.anymetal_elements = value;
    return m;
}

// `transposed` exchanges rows and columns of what lies in memory.
template <class T, class P, class = anymetal::if_points_to<P, T>>
ANYMETAL_TOUCHES void simdgroup_load(thread simdgroup_matrix<T, 8> &m, P source, ulong elements_per_row = 8,
                                   ulong2 origin = 0, bool transposed = false) {
    const anymetal::matrix_place place(elements_per_row, origin, transposed);
    ANYMETAL_UNROLLED for (uint i = 0; i < 2; i++) m.anymetal_elements[i] = source[place.first + i * place.step];
}
template <class T, class P, class = anymetal::if_points_to<P, T>>
ANYMETAL_TOUCHES void simdgroup_store(simdgroup_matrix<T, 8> m, P target, ulong elements_per_row = 8, ulong2 origin = 0,
                                    bool transposed = false) {
    const anymetal::matrix_place place(elements_per_row, origin, transposed);
    ANYMETAL_UNROLLED for (uint i = 0; i < 2; i++) target[place.first + i * place.step] = m.anymetal_elements[i];
}

// Sums are of type float, from the first component of a row to the last.
template <class D, class A, class B, class S>
inline void simdgroup_multiply_accumulate(thread simdgroup_matrix<D, 8> &d, simdgroup_matrix<A, 8> a,
                                          simdgroup_matrix<B, 8> b, simdgroup_matrix<S, 8> s, ANYMETAL_HERE) {
    const vec<A, 2> left = a.anymetal_elements;
    const vec<B, 2> right = b.anymetal_elements;
    const anymetal::lanes<float4> x(float4{left.x, left.y, right.x, right.y}, ANYMETAL_PLACE);
    const ulong row = anymetal::matrix_row(x.self), column = anymetal::matrix_column(x.self);
    float2 sum = anymetal::construct<float2>(s.anymetal_elements);
    ANYMETAL_UNROLLED for (uint k = 0; k < 8; k++) {
        const float4 in_row = x[anymetal::matrix_lane(row, k)], in_column = x[anymetal::matrix_lane(k, column)];
        const float factor = k % 2 ? in_row.y : in_row.x;
        sum = float2{__builtin_fmaf(factor, in_column.z, sum.x), __builtin_fmaf(factor, in_column.w, sum.y)};
    }
    d.anymetal_elements = anymetal::construct<vec<D, 2>>(sum);
}
template <class D, class A, class B>
inline void simdgroup_multiply(thread simdgroup_matrix<D, 8> &d, simdgroup_matrix<A, 8> a, simdgroup_matrix<B, 8> b,
                               ANYMETAL_HERE) {
    simdgroup_multiply_accumulate(d, a, b, make_filled_simdgroup_matrix<float, 8>(0.0f), ANYMETAL_PLACE);
}
template <class T> inline simdgroup_matrix<T, 8> operator*(simdgroup_matrix<T, 8> a, simdgroup_matrix<T, 8> b) {
    simdgroup_matrix<T, 8> d;
    simdgroup_multiply(d, a, b);
    return d;
}

} // namespace metal

