// Tensors of MSL 4.0, over memory (tensor_inline) and in the registers of threads that work together (cooperative).
// Unlike the other headers this one is MSL, and is read with the source that includes it. Its names are words, since
// macros of the source apply to it.
#pragma once
#if __METAL_VERSION__ < 400
#error "tensors need MSL 4.0"
#endif

namespace metal {

constexpr constant size_t dynamic_extent = size_t(-1);

// The lengths of a tensor, the innermost dimension first.
template <class Index, size_t... Lengths> struct extents {
    typedef Index index_type;
    typedef Index size_type;
    Index anymetal_sizes[sizeof...(Lengths)] = {Index(Lengths)...};
    extents() = default;
    // All lengths, or those that are dynamic.
    template <class... Given> constexpr extents(Given... sizes) {
        const Index given[] = {Index(sizes)...};
        for (size_t i = 0, k = 0; i < sizeof...(Lengths); i++)
            if (sizeof...(Given) == sizeof...(Lengths) || static_extent(i) == dynamic_extent)
                anymetal_sizes[i] = given[k++];
    }
    static constexpr size_t rank() { return sizeof...(Lengths); }
    static constexpr size_t static_extent(size_t i) {
        const size_t all[] = {Lengths...};
        return all[i];
    }
    constexpr Index extent(size_t i) const { return anymetal_sizes[i]; }
};

} // namespace metal

namespace anymetal {

template <size_t> constexpr constant size_t dynamic = metal::dynamic_extent;
template <class Index, class Sequence> struct all_dynamic;
template <class Index, size_t... Numbers> struct all_dynamic<Index, metal::integer_sequence<size_t, Numbers...>> {
    typedef metal::extents<Index, dynamic<Numbers>...> type;
};

} // namespace anymetal

namespace metal {

template <class Index, size_t Rank>
using dextents = typename anymetal::all_dynamic<Index, make_index_sequence<Rank>>::type;

struct tensor_handle {};
struct tensor_offset {};
struct tensor_inline {};

// A view of memory; the address space is that of `Element`. What an operation reads outside of the extents is 0, and
// what it writes there is dropped.
template <class Element, class Extents, class Kind = tensor_handle, class... Tags> struct tensor {
    typedef Element element_type;
    typedef remove_cvref_t<Element> value_type;
    typedef Extents extents_type;
    typedef typename Extents::index_type index_type;
    typedef Element *data_handle_type;
    typedef void anymetal_is_tensor;
    Element *anymetal_data;
    Extents anymetal_extents;
    long anymetal_strides[Extents::rank()];

    tensor(Element *data, Extents sizes) : anymetal_data(data), anymetal_extents(sizes) {
        long step = 1;
        for (size_t i = 0; i < Extents::rank(); step *= long(sizes.extent(i)), i++) anymetal_strides[i] = step;
    }
    template <class Step> tensor(Element *data, Extents sizes, array<Step, Extents::rank()> strides)
        : anymetal_data(data), anymetal_extents(sizes) {
        for (size_t i = 0; i < Extents::rank(); i++) anymetal_strides[i] = long(strides[i]);
    }
    static constexpr bool anymetal_is_dynamic() {
        for (size_t i = 0; i < Extents::rank(); i++)
            if (Extents::static_extent(i) != dynamic_extent) return false;
        return true;
    }
    static constexpr size_t get_rank() { return Extents::rank(); }
    static constexpr size_t get_static_extent(size_t i) { return Extents::static_extent(i); }
    index_type get_extent(size_t i) const { return anymetal_extents.extent(i); }
    Extents get_extents() const { return anymetal_extents; }
    long get_stride(size_t i) const { return anymetal_strides[i]; }
    Element *get_data_handle() const { return anymetal_data; }

    // From the offsets on: to the end of the tensor, or with lengths of its own.
    template <class... Given> auto slice(Given... offsets) const {
        return anymetal_slice<dextents<index_type, Extents::rank()>>(offsets...);
    }
    template <size_t First, size_t... Lengths, class... Given> auto slice(Given... offsets) const {
        return anymetal_slice<extents<index_type, First, Lengths...>>(offsets...);
    }
    template <class Sizes, class... Given> auto anymetal_slice(Given... offsets) const {
        static_assert(sizeof...(Given) == Extents::rank(), "a slice has an offset for each dimension");
        const long at[] = {long(offsets)...};
        Element *data = anymetal_data;
        Sizes sizes;
        array<long, Extents::rank()> strides;
        for (size_t i = 0; i < Extents::rank(); i++) {
            data += at[i] * anymetal_strides[i];
            strides[i] = anymetal_strides[i];
            if (Sizes::static_extent(i) == dynamic_extent) sizes.anymetal_sizes[i] = index_type(get_extent(i) - at[i]);
        }
        return tensor<Element, Sizes, tensor_inline>(data, sizes, strides);
    }

    template <class Index> Element &operator[](array<Index, Extents::rank()> place) const {
        long at = 0;
        for (size_t i = 0; i < Extents::rank(); i++) at += long(place[i]) * anymetal_strides[i];
        return anymetal_data[at];
    }
    bool anymetal_has(long column, long row) const {
        return column >= 0 && row >= 0 && column < long(get_extent(0)) && row < long(get_extent(1));
    }
    METAL_FUNC Element &anymetal_at(long column, long row) const {
        return anymetal_data[column * anymetal_strides[0] + row * anymetal_strides[1]];
    }
};
template <class Element, class Index, size_t... Lengths>
tensor(Element *, extents<Index, Lengths...>) -> tensor<Element, extents<Index, Lengths...>, tensor_inline>;
template <class Element, class Index, class Step, size_t... Lengths>
tensor(Element *, extents<Index, Lengths...>, array<Step, sizeof...(Lengths)>)
    -> tensor<Element, extents<Index, Lengths...>, tensor_inline>;

template <int Count> struct execution_threads {
    static constexpr int anymetal_threads() { return Count; }
};
template <int Count> struct execution_simdgroups {
    static constexpr int anymetal_threads() { return 32 * Count; }
};
using execution_thread = execution_threads<1>;
using execution_simdgroup = execution_simdgroups<1>;

} // namespace metal

namespace anymetal {

// Where the elements of a matrix lie in the registers of threads. Apple leaves it open; sources (MLX) rely on this one:
// fragments of 16 rows and 16 columns, row by row, of which each simdgroup has the same number in a row. A lane has
// eight elements of a fragment: four side by side, and four in the row that is eight below.
template <int Rows, int Columns, int Threads> struct fragments {
    static constexpr int rows() { return Rows; }
    static constexpr int columns() { return Columns; }
    static constexpr int threads() { return Threads; }
    static constexpr int across() { return (Columns + 15) / 16; }
    static constexpr int capacity() {
        const int all = (Rows + 15) / 16 * across(), simdgroups = Threads / 32;
        return Threads < 32 ? Rows * Columns : (all + simdgroups - 1) / simdgroups * 8;
    }
    // Row and column of element i of a thread.
    static constexpr int2 place(uint thread_index, int i) {
        if (Threads < 32) return int2(i / Columns, i % Columns);
        const int lane = int(thread_index % 32), quad = lane / 4;
        const int fragment = int(thread_index / 32) * (capacity() / 8) + i / 8;
        const int row = (quad & 4) + lane / 2 % 4 + i % 8 / 4 * 8, column = ((quad & 2) + lane % 2) * 4 + i % 4;
        return int2(fragment / across() * 16 + row, fragment % across() * 16 + column);
    }
    static constexpr bool has(int2 at) { return at.x < Rows && at.y < Columns; }
    static uint self() { return thread_index() % uint(Threads); }
};

} // namespace anymetal

namespace metal {

// A matrix in the registers of threads; at first its elements are 0.
template <class Element, class Extents, class Layout> struct cooperative_tensor {
    typedef Element element_type;
    typedef Element value_type;
    typedef Extents extents_type;
    typedef typename Extents::index_type index_type;
    typedef Layout layout;
    Element anymetal_elements[Layout::capacity()] = {};

    struct iterator {
        thread cooperative_tensor *anymetal_of;
        int anymetal_i;
        thread Element &operator*() const { return anymetal_of->anymetal_elements[anymetal_i]; }
        thread iterator &operator++() thread {
            anymetal_i++;
            return *this;
        }
        bool operator!=(iterator other) const { return anymetal_i != other.anymetal_i; }
        bool operator==(iterator other) const { return anymetal_i == other.anymetal_i; }
        auto get_multidimensional_index() const { return anymetal_of->get_multidimensional_index(anymetal_i); }
        bool is_valid_element() const { return anymetal_of->is_valid_element(anymetal_i); }
    };

    static constexpr ushort get_capacity() { return ushort(Layout::capacity()); }
    static constexpr size_t rank() { return 2; }
    static constexpr size_t get_rank() { return 2; }
    static constexpr size_t get_static_extent(size_t i) { return Extents::static_extent(i); }
    thread Element &operator[](int i) thread { return anymetal_elements[i]; }
    Element operator[](int i) const { return anymetal_elements[i]; }
    iterator begin() thread { return {this, 0}; }
    iterator end() thread { return {this, Layout::capacity()}; }
    bool is_valid_element(int i) const { return Layout::has(Layout::place(Layout::self(), i)); }
    bool get_mask(int i) const { return is_valid_element(i); }
    // Column and row of an element.
    array<index_type, 2> get_multidimensional_index(int i) const {
        const int2 at = Layout::place(Layout::self(), i);
        return array<index_type, 2>{index_type(at.y), index_type(at.x)};
    }
    template <class Other, class Lengths, class... Tags>
    METAL_FUNC void load(tensor<Other, Lengths, Tags...> from) {
        for (int i = 0; i < Layout::capacity(); i++) {
            const int2 at = Layout::place(Layout::self(), i);
            const bool is_inside = Layout::has(at) && from.anymetal_has(at.y, at.x);
            anymetal_elements[i] = Element(0);
            if (is_inside)
                anymetal_elements[i] = anymetal::scalar<Element>(remove_cvref_t<Other>(from.anymetal_at(at.y, at.x)));
        }
    }
    template <class Other, class Lengths, class... Tags>
    METAL_FUNC void store(tensor<Other, Lengths, Tags...> to) const {
        for (int i = 0; i < Layout::capacity(); i++) {
            const int2 at = Layout::place(Layout::self(), i);
            if (Layout::has(at) && to.anymetal_has(at.y, at.x))
                to.anymetal_at(at.y, at.x) = anymetal::scalar<remove_cvref_t<Other>>(anymetal_elements[i]);
        }
    }
};

template <class Element> struct is_tensor : false_type {};
template <class... Given> struct is_tensor<tensor<Given...>> : true_type {};
template <class Element> struct is_cooperative_tensor : false_type {};
template <class... Given> struct is_cooperative_tensor<cooperative_tensor<Given...>> : true_type {};
template <class Element> constexpr constant bool is_tensor_v = is_tensor<Element>::value;
template <class Element> constexpr constant bool is_cooperative_tensor_v = is_cooperative_tensor<Element>::value;

} // namespace metal
