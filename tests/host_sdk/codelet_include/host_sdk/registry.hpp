// Host model of Poplar, not Poplar: see tests/host_sdk/README.md.
// Included after a codelet source, by the file generated from it: describes vertices by their member pointers.
#pragma once

#include <cstddef>
#include <type_traits>

#include "host_sdk/abi.hpp"
#include "poplar/Vertex.hpp"

namespace host_sdk {

template <class T>
struct TypeName {
  static_assert(sizeof(T) == 0,
                "a vertex field holds a number, an Input, Output or InOut of one, or a Vector of these; "
                "no struct, array or pointer");
};
template <>
struct TypeName<float> {
  static constexpr const char* value = "float";
};
template <>
struct TypeName<half> {
  static constexpr const char* value = "half";
};
template <>
struct TypeName<bool> {
  static constexpr const char* value = "bool";
};
template <>
struct TypeName<char> {
  static constexpr const char* value = "char";
};
template <>
struct TypeName<signed char> {
  static constexpr const char* value = "signed char";
};
template <>
struct TypeName<unsigned char> {
  static constexpr const char* value = "unsigned char";
};
template <>
struct TypeName<short> {
  static constexpr const char* value = "short";
};
template <>
struct TypeName<unsigned short> {
  static constexpr const char* value = "unsigned short";
};
template <>
struct TypeName<int> {
  static constexpr const char* value = "int";
};
template <>
struct TypeName<unsigned> {
  static constexpr const char* value = "unsigned int";
};
template <>
struct TypeName<long long> {
  static constexpr const char* value = "long long";
};
template <>
struct TypeName<unsigned long long> {
  static constexpr const char* value = "unsigned long long";
};

constexpr int layoutOf(poplar::VectorLayout layout) {
  using L = poplar::VectorLayout;
  return layout == L::SPAN         ? kSpan
         : layout == L::SHORT_SPAN ? kShortSpan
         : layout == L::ONE_PTR    ? kOnePtr
                                   : kCompactPtr;
}

template <class T>
struct Describe {
  static void fill(HostSdkField& f) {
    using Number = std::conditional_t<std::is_enum<T>::value, int, T>;
    f.type = TypeName<Number>::value;
    f.kind = kState;
    f.access = kNone;
    f.align = alignof(T);
  }
};
template <class T>
struct Describe<const T> : Describe<T> {};

template <class T, int Access>
struct DescribeEdge {
  static void fill(HostSdkField& f) {
    f.type = TypeName<T>::value;
    f.kind = kEdge;
    f.access = Access;
    f.align = alignof(T);
  }
};
template <class T, poplar::VectorLayout L, unsigned A, bool I, int Access>
struct DescribeEdge<poplar::Vector<T, L, A, I>, Access> {
  static void fill(HostSdkField& f) {
    f.type = TypeName<T>::value;
    f.kind = kEdgeVector;
    f.access = Access;
    f.layout = layoutOf(L);
    f.align = A > alignof(T) ? A : alignof(T);
  }
};
template <class T>
struct Describe<poplar::Input<T>> : DescribeEdge<T, kInput> {};
template <class T>
struct Describe<poplar::Output<T>> : DescribeEdge<T, kOutput> {};
template <class T>
struct Describe<poplar::InOut<T>> : DescribeEdge<T, kInOut> {};

template <class T, poplar::VectorLayout L, unsigned A, bool I>
struct Describe<poplar::Vector<T, L, A, I>> {
  static void fill(HostSdkField& f) {
    Describe<T>::fill(f);
    f.kind = f.kind == kState ? kStateVector : f.kind == kEdge ? kEdgeList : kEdgeVectorList;
    if (f.kind == kStateVector) {
      f.layout = layoutOf(L);
      f.align = A > f.align ? A : f.align;
    } else {
      f.list_layout = layoutOf(L);
    }
  }
};

template <class V, class M>
HostSdkField field(const char* name, M V::* member) {
  alignas(V) static char storage[sizeof(V)];
  V* vertex = reinterpret_cast<V*>(storage);
  HostSdkField f = {name, "", kState, kNone, kNotApplicable, kNotApplicable, 1, 0};
  Describe<M>::fill(f);
  f.offset = static_cast<unsigned long>(reinterpret_cast<const volatile char*>(&(vertex->*member)) -
                                        reinterpret_cast<const volatile char*>(vertex));
  return f;
}

template <class V, bool Multi = std::is_base_of<poplar::MultiVertex, V>::value>
struct Compute {
  static void run(void* vertex, unsigned worker) { static_cast<V*>(vertex)->compute(worker); }
};
template <class V>
struct Compute<V, false> {
  static void run(void* vertex, unsigned) { static_cast<V*>(vertex)->compute(); }
};

template <class V>
HostSdkVertex vertex(const char* name, const HostSdkField* fields, unsigned long count) {
  return {name, sizeof(V), alignof(V), std::is_base_of<poplar::MultiVertex, V>::value, fields, count, &Compute<V>::run};
}

}  // namespace host_sdk
