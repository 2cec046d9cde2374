// <metal_matrix>: matrices of C columns with R rows.
#pragma once

namespace metal {

template <class T, int C, int R> struct matrix {
    vec<T, R> columns[C];

    matrix() = default;
    constexpr explicit matrix(T diagonal) : columns{} {
        ANYMETAL_UNROLLED for (int i = 0; i < C && i < R; i++) {
            vec<T, R> column = T(0); // a column is stored as a whole: 12 bytes would not be instrumented
            column[i] = diagonal;
            columns[i] = column;
        }
    }
    template <class... A, class = anymetal::enable<sizeof...(A) == C && (anymetal::shape<A>::is_vector && ...)>>
    constexpr matrix(A... of_columns) : columns{vec<T, R>(of_columns)...} {}
    template <
        class... A, class = anymetal::enable<sizeof...(A) == C * R && (anymetal::is_number<A> && ...)>, class = void
    >
    constexpr matrix(A... components) : columns{} {
        const T values[] = {T(components)...};
        ANYMETAL_UNROLLED for (int i = 0; i < C; i++) {
            vec<T, R> column = T(0);
            ANYMETAL_UNROLLED for (int j = 0; j < R; j++) column[j] = values[i * R + j];
            columns[i] = column;
        }
    }
    typedef vec<T, R> anymetal_column;
    struct anymetal_list { // a column as `{1, 2}`
        anymetal_column is;
        template <class... A, class = anymetal::enable<sizeof...(A) == R && (anymetal::is_number<A> && ...)>>
        constexpr anymetal_list(A... a) : is{T(a)...} {}
        template <class A, class = anymetal::enable<__is_same(A, anymetal_column)>, class = void>
        constexpr anymetal_list(A a) : is(a) {}
    };
    template <int N = C, class = anymetal::enable<N == 2>>
    constexpr matrix(anymetal_list a, anymetal_list b) : columns{a.is, b.is} {}
    template <int N = C, class = anymetal::enable<N == 3>>
    constexpr matrix(anymetal_list a, anymetal_list b, anymetal_list c) : columns{a.is, b.is, c.is} {}
    template <int N = C, class = anymetal::enable<N == 4>>
    constexpr matrix(anymetal_list a, anymetal_list b, anymetal_list c, anymetal_list d)
        : columns{a.is, b.is, c.is, d.is} {}
    template <class U, class = anymetal::enable<!__is_same(T, U)>>
    constexpr explicit matrix(matrix<U, C, R> other) : columns{} {
        ANYMETAL_UNROLLED for (int i = 0; i < C; i++) columns[i] = anymetal::construct<vec<T, R>>(other.columns[i]);
    }

    ANYMETAL_SUBSCRIPT(anymetal_column, int, ANYMETAL_SELF.columns[i])

    constexpr matrix &operator+=(matrix b) { return *this = *this + b; }
    constexpr matrix &operator-=(matrix b) { return *this = *this - b; }
    constexpr matrix &operator*=(T b) { return *this = *this * b; }
    constexpr matrix &operator/=(T b) { return *this = *this / b; }
    constexpr matrix &operator*=(matrix<T, C, C> b) { return *this = *this * b; }

    friend constexpr matrix operator-(matrix a) { return a * T(-1); }
    friend constexpr matrix operator+(matrix a, matrix b) {
        ANYMETAL_UNROLLED for (int i = 0; i < C; i++) a.columns[i] += b.columns[i];
        return a;
    }
    friend constexpr matrix operator-(matrix a, matrix b) {
        ANYMETAL_UNROLLED for (int i = 0; i < C; i++) a.columns[i] -= b.columns[i];
        return a;
    }
    friend constexpr matrix operator*(matrix a, T b) {
        ANYMETAL_UNROLLED for (int i = 0; i < C; i++) a.columns[i] *= b;
        return a;
    }
    friend constexpr matrix operator*(T a, matrix b) { return b * a; }
    friend constexpr matrix operator/(matrix a, T b) {
        ANYMETAL_UNROLLED for (int i = 0; i < C; i++) a.columns[i] /= b;
        return a;
    }
    friend constexpr vec<T, R> operator*(matrix a, vec<T, C> b) {
        vec<T, R> sum = a.columns[0] * b[0];
        ANYMETAL_UNROLLED for (int i = 1; i < C; i++) sum += a.columns[i] * b[i];
        return sum;
    }
    friend constexpr vec<T, C> operator*(vec<T, R> a, matrix b) {
        vec<T, C> r{};
        ANYMETAL_UNROLLED for (int i = 0; i < C; i++) r[i] = dot(a, b.columns[i]);
        return r;
    }
    friend constexpr bool operator==(matrix a, matrix b) {
        bool are_equal = true;
        ANYMETAL_UNROLLED for (int i = 0; i < C; i++) are_equal &= all(a.columns[i] == b.columns[i]);
        return are_equal;
    }
    friend constexpr bool operator!=(matrix a, matrix b) { return !(a == b); }
};

template <class T, int C, int R, int K> constexpr matrix<T, K, R> operator*(matrix<T, C, R> a, matrix<T, K, C> b) {
    matrix<T, K, R> r(T(0));
    ANYMETAL_UNROLLED for (int i = 0; i < K; i++) r.columns[i] = a * b.columns[i];
    return r;
}

template <class T, int C, int R> constexpr matrix<T, R, C> transpose(matrix<T, C, R> a) {
    matrix<T, R, C> r(T(0));
    ANYMETAL_UNROLLED for (int i = 0; i < C * R; i++) r.columns[i % R][i / R] = a.columns[i / R][i % R];
    return r;
}

// By the first column: each component times the determinant of what remains without its row and its column.
template <class T, int N> constexpr T determinant(matrix<T, N, N> a) {
    if constexpr (N == 2) {
        return a.columns[0][0] * a.columns[1][1] - a.columns[1][0] * a.columns[0][1];
    } else {
        T sum = T(0);
        ANYMETAL_UNROLLED for (int row = 0; row < N; row++) {
            matrix<T, N - 1, N - 1> minor(T(0));
            ANYMETAL_UNROLLED for (int i = 0; i < (N - 1) * (N - 1); i++) {
                const int j = i % (N - 1);
                minor.columns[i / (N - 1)][j] = a.columns[1 + i / (N - 1)][j < row ? j : j + 1];
            }
            const T term = a.columns[0][row] * determinant(minor);
            sum = row % 2 ? T(sum - term) : T(sum + term);
        }
        return sum;
    }
}

#define ANYMETAL_MATRICES(T, C) \
    typedef matrix<T, C, 2> T##C##x2; \
    typedef matrix<T, C, 3> T##C##x3; \
    typedef matrix<T, C, 4> T##C##x4; \
    static_assert(sizeof(T##C##x2) + sizeof(T##C##x3) + sizeof(T##C##x4) == C * 10 * sizeof(T));
#define ANYMETAL_MATRICES_OF(T) ANYMETAL_MATRICES(T, 2) ANYMETAL_MATRICES(T, 3) ANYMETAL_MATRICES(T, 4)
ANYMETAL_MATRICES_OF(half)
ANYMETAL_MATRICES_OF(float)
ANYMETAL_BFLOAT(ANYMETAL_MATRICES_OF)

} // namespace metal
