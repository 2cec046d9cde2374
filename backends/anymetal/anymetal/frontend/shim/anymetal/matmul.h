// mpp::tensor_ops::matmul2d: products of matrices by threads that work together. MSL, as tensor.h.
#pragma once
#include "tensor.h"

namespace mpp {
namespace tensor_ops {

// An argument of a template: it converts to a number, in which it is packed.
struct matmul2d_descriptor {
    enum class mode { multiply, multiply_accumulate };
    int m, n, k;
    bool transpose_left, transpose_right, relaxed_precision;
    mode matmul_mode;
    constexpr matmul2d_descriptor(int m, int n, int k = int(metal::dynamic_extent), bool left = false,
                                  bool right = false, bool relaxed = false, mode how = mode::multiply)
        : m(m), n(n), k(k), transpose_left(left), transpose_right(right), relaxed_precision(relaxed),
          matmul_mode(how) {}
    constexpr operator ulong() const {
        return ulong(m) | ulong(n) << 16 | ulong(k < 0 ? 0 : k) << 32 | ulong(transpose_left) << 56 |
               ulong(transpose_right) << 57 | ulong(matmul_mode == mode::multiply_accumulate) << 58;
    }
};

} // namespace tensor_ops
} // namespace mpp

namespace anymetal {

// Functions that access tensors are inlined: the checks name the line of the source that calls them.

// The factors of a product: element (row, column) of a tensor, or of a matrix that the lanes of a simdgroup hold.
template <class Number, class Element> struct factor {
    const Element from;
    factor(Element from, site) : from(from) {}
    METAL_FUNC Number at(long column, long row) const {
        typedef metal::remove_cvref_t<typename Element::element_type> element;
        return from.anymetal_has(column, row) ? scalar<Number>(element(from.anymetal_at(column, row))) : Number(0);
    }
};
template <class Element, int Count> struct elements {
    Element all[Count];
};
template <class Number, class Element, class Extents, class Layout>
struct factor<Number, metal::cooperative_tensor<Element, Extents, Layout>> {
    static_assert(Layout::threads() <= 32, "a cooperative tensor is a factor in the scope of a thread or a simdgroup");
    Number all[Layout::rows()][Layout::columns()];
    factor(metal::cooperative_tensor<Element, Extents, Layout> from, site here) {
        constexpr int most = int(64 / sizeof(Element)), part = Layout::capacity() < most ? Layout::capacity() : most;
        for (int first = 0; first < Layout::capacity(); first += part) {
            elements<Element, part> mine;
            for (int i = 0; i < part && first + i < Layout::capacity(); i++)
                mine.all[i] = from.anymetal_elements[first + i];
            if constexpr (Layout::threads() == 1) {
                keep(mine, 0, first);
            } else {
                const lanes<elements<Element, part>> x(mine, here);
                for (uint lane = 0; lane < 32; lane++) keep(x.of(lane, true, here), lane, first);
            }
        }
    }
    template <class Elements> void keep(Elements found, uint lane, int first) {
        for (int i = 0; i < int(sizeof(found) / sizeof(Element)) && first + i < Layout::capacity(); i++) {
            const int2 at = Layout::place(lane, first + i);
            if (Layout::has(at)) all[at.x][at.y] = scalar<Number>(found.all[i]);
        }
    }
    Number at(long column, long row) const { return all[row][column]; }
};

} // namespace anymetal

namespace mpp {
namespace tensor_ops {

template <ulong Descriptor, class Scope, class... Arguments> struct matmul2d {
    static constexpr int anymetal_m() { return int(Descriptor & 0xffff); }
    static constexpr int anymetal_n() { return int(Descriptor >> 16 & 0xffff); }
    static constexpr int anymetal_k() { return int(Descriptor >> 32 & 0xffffff); } // 0: dynamic
    static constexpr bool anymetal_flag(int i) { return Descriptor >> (56 + i) & 1; }
    template <class Element, int Rows, int Columns> using matrix = metal::cooperative_tensor<
        Element, metal::extents<int, size_t(Columns), size_t(Rows)>,
        anymetal::fragments<Rows, Columns, Scope::anymetal_threads()>>;

    template <class Left, class Right, class Target> auto get_left_input_cooperative_tensor() const {
        static_assert(anymetal_k() > 0, "a cooperative tensor as a factor needs a length of K");
        return matrix<Left, anymetal_flag(0) ? anymetal_k() : anymetal_m(), anymetal_flag(0) ? anymetal_m() : anymetal_k()>();
    }
    template <class Left, class Right, class Target> auto get_right_input_cooperative_tensor() const {
        static_assert(anymetal_k() > 0, "a cooperative tensor as a factor needs a length of K");
        return matrix<Right, anymetal_flag(1) ? anymetal_n() : anymetal_k(), anymetal_flag(1) ? anymetal_k() : anymetal_n()>();
    }
    template <class Left, class Right, class Target> auto get_destination_cooperative_tensor() const {
        return matrix<Target, anymetal_m(), anymetal_n()>();
    }

    // Sums are of float, or of int, from the first term to the last. Each thread computes the elements that it holds.
    template <class Left, class Right, class Target>
    METAL_FUNC void run(const thread Left &left, const thread Right &right, Target &&destination,
                        anymetal::site here = anymetal::here()) const {
        typedef metal::remove_cvref_t<Target> target;
        typedef metal::remove_cvref_t<typename target::element_type> element;
        typedef metal::conditional_t<metal::is_integral_v<element>, int, float> number;
        typedef anymetal::fragments<anymetal_m(), anymetal_n(), Scope::anymetal_threads()> layout;
        const anymetal::factor<number, Left> a(left, here);
        const anymetal::factor<number, Right> b(right, here);
        long terms = anymetal_k();
        if constexpr (anymetal_k() == 0) terms = long(left.get_extent(anymetal_flag(0) ? 1 : 0));
        for (int i = 0; i < layout::capacity(); i++) {
            const int2 at = layout::place(layout::self(), i);
            if (!layout::has(at)) continue;
            if constexpr (metal::is_cooperative_tensor_v<target>) {
                anymetal_add(a, b, at, terms, destination.anymetal_elements[i]);
            } else if (destination.anymetal_has(at.y, at.x)) {
                element sum = anymetal_flag(2) ? element(destination.anymetal_at(at.y, at.x)) : element(0);
                anymetal_add(a, b, at, terms, sum);
                destination.anymetal_at(at.y, at.x) = sum;
            }
        }
    }
    template <class Number, class FactorA, class FactorB, class Element>
    METAL_FUNC static void anymetal_add(const thread anymetal::factor<Number, FactorA> &a,
                                      const thread anymetal::factor<Number, FactorB> &b, int2 at, long terms,
                                      thread Element &result) {
        Number sum = anymetal_flag(2) ? anymetal::scalar<Number>(result) : Number(0);
        for (long k = 0; k < terms; k++)
            sum += a.at(anymetal_flag(0) ? at.x : k, anymetal_flag(0) ? k : at.x) *
                   b.at(anymetal_flag(1) ? k : at.y, anymetal_flag(1) ? at.y : k);
        result = anymetal::scalar<Element>(sum);
    }
};

} // namespace tensor_ops
} // namespace mpp
