// Host model of Poplar, not Poplar: see tests/host_sdk/README.md.
#include <algorithm>
#include <poplar/Graph.hpp>
#include <poplar/Tensor.hpp>
#include <sstream>

#include "runtime.hpp"

namespace poplar {
namespace {

std::size_t product(const std::vector<std::size_t>& shape, std::size_t begin, std::size_t end) {
  std::size_t n = 1;
  for (std::size_t i = begin; i < end; ++i) n *= shape[i];
  return n;
}

std::string show(const std::vector<std::size_t>& shape) {
  std::ostringstream out;
  out << '{';
  for (std::size_t i = 0; i < shape.size(); ++i) out << (i ? "," : "") << shape[i];
  out << '}';
  return out.str();
}

void addPiece(std::vector<Tensor::Piece>& pieces, const Tensor::Piece& piece) {
  if (piece.size == 0) return;
  if (!pieces.empty()) {
    auto& last = pieces.back();
    if (last.variable == piece.variable && last.begin + last.size == piece.begin) {
      last.size += piece.size;
      return;
    }
  }
  pieces.push_back(piece);
}

const std::vector<Tensor::Piece> kNoPieces;

}  // namespace

Tensor::Tensor(Graph* graph, const Type& type, std::vector<std::size_t> shape, std::vector<Piece> pieces)
    : graph_(graph), type_(type), shape_(std::move(shape)) {
  auto layout = std::make_shared<Layout>();
  layout->pieces = std::move(pieces);
  std::size_t start = 0;
  layout->starts.reserve(layout->pieces.size());
  for (const auto& piece : layout->pieces) {
    layout->starts.push_back(start);
    start += piece.size;
  }
  if (start != product(shape_, 0, shape_.size())) {
    throw poplar_error("tensor of shape " + show(shape_) + " made of " + std::to_string(start) + " elements");
  }
  layout_ = std::move(layout);
}

const std::vector<Tensor::Piece>& Tensor::pieces() const { return layout_ ? layout_->pieces : kNoPieces; }

std::size_t Tensor::dim(unsigned i) const {
  if (i >= shape_.size()) throw poplar_error("Tensor::dim(" + std::to_string(i) + ") of " + shapeToString());
  return shape_[i];
}

std::size_t Tensor::numElements() const { return valid() ? product(shape_, 0, shape_.size()) : 0; }

std::string Tensor::shapeToString() const { return show(shape_); }

Tensor Tensor::withShape(std::vector<std::size_t> shape) const {
  Tensor t = *this;
  t.shape_ = std::move(shape);
  return t;
}

void Tensor::takeInto(std::size_t begin, std::size_t end, std::vector<Piece>& out) const {
  if (begin >= end) return;
  const auto& starts = layout_->starts;
  auto i = static_cast<std::size_t>(std::upper_bound(starts.begin(), starts.end(), begin) - starts.begin()) - 1;
  while (begin < end) {
    const Piece& piece = layout_->pieces[i];
    const std::size_t offset = begin - starts[i];
    const std::size_t n = std::min(end - begin, piece.size - offset);
    addPiece(out, {piece.variable, piece.begin + offset, n});
    begin += n;
    ++i;
  }
}

std::vector<Tensor::Piece> Tensor::take(std::size_t begin, std::size_t end) const {
  std::vector<Piece> out;
  takeInto(begin, end, out);
  return out;
}

Tensor Tensor::slice(std::size_t begin, std::size_t end, unsigned dimension) const {
  if (dimension >= rank() || begin > end || end > shape_[dimension]) {
    throw poplar_error("Tensor::slice(" + std::to_string(begin) + ", " + std::to_string(end) + ", " +
                       std::to_string(dimension) + ") of a tensor of shape " + shapeToString());
  }
  const std::size_t outer = product(shape_, 0, dimension);
  const std::size_t inner = product(shape_, dimension + 1, shape_.size());
  std::vector<Piece> out;
  for (std::size_t o = 0; o < outer; ++o) {
    const std::size_t row = o * shape_[dimension] * inner;
    takeInto(row + begin * inner, row + end * inner, out);
  }
  auto shape = shape_;
  shape[dimension] = end - begin;
  return Tensor(graph_, type_, std::move(shape), std::move(out));
}

Tensor Tensor::slice(ArrayRef<std::size_t> begin, ArrayRef<std::size_t> end) const {
  if (begin.size() != end.size() || begin.size() > rank()) {
    throw poplar_error("Tensor::slice: as many begins as ends, at most one per dimension");
  }
  Tensor t = *this;
  for (unsigned d = 0; d < begin.size(); ++d) t = t.slice(begin[d], end[d], d);
  return t;
}

std::vector<Tensor> Tensor::slices(ArrayRef<Interval> intervals, unsigned dimension) const {
  std::vector<Tensor> out;
  out.reserve(intervals.size());
  for (const auto& interval : intervals) out.push_back(slice(interval, dimension));
  return out;
}

std::vector<Tensor> Tensor::slices(const std::vector<std::vector<Interval>>& intervals, unsigned dimension) const {
  std::vector<Tensor> out;
  out.reserve(intervals.size());
  for (const auto& group : intervals) out.push_back(concat(slices(group, dimension), dimension));
  return out;
}

Tensor Tensor::subSample(unsigned stride, unsigned dimension, unsigned offset) const {
  std::vector<Tensor> parts;
  for (std::size_t i = offset; i < dim(dimension); i += stride) parts.push_back(slice(i, i + 1, dimension));
  return concat(parts, dimension);
}

Tensor Tensor::operator[](std::size_t i) const {
  if (rank() == 0) throw poplar_error("Tensor::operator[] of a scalar");
  Tensor t = slice(i, i + 1, 0);
  return t.withShape(std::vector<std::size_t>(shape_.begin() + 1, shape_.end()));
}

Tensor Tensor::flatten() const { return withShape({numElements()}); }

Tensor Tensor::flatten(unsigned dimBegin, unsigned dimEnd) const {
  if (dimBegin > dimEnd || dimEnd > rank()) throw poplar_error("Tensor::flatten: no such dimensions");
  std::vector<std::size_t> shape(shape_.begin(), shape_.begin() + dimBegin);
  shape.push_back(product(shape_, dimBegin, dimEnd));
  shape.insert(shape.end(), shape_.begin() + dimEnd, shape_.end());
  return withShape(std::move(shape));
}

Tensor Tensor::reshape(ArrayRef<std::size_t> shape) const {
  auto wanted = shape.cloneAsVector();
  if (product(wanted, 0, wanted.size()) != numElements()) {
    throw poplar_error("Tensor::reshape of " + shapeToString() + " to " + show(wanted));
  }
  return withShape(std::move(wanted));
}

Tensor Tensor::dimShuffle(ArrayRef<unsigned> permutation) const {
  if (permutation.size() != rank()) throw poplar_error("Tensor::dimShuffle: one entry per dimension");
  std::vector<std::size_t> shape(rank());
  std::vector<std::size_t> strides(rank());
  std::vector<bool> seen(rank(), false);
  for (unsigned i = 0; i < rank(); ++i) {
    const unsigned from = permutation[i];
    if (from >= rank() || seen[from]) throw poplar_error("Tensor::dimShuffle: not a permutation");
    seen[from] = true;
    shape[i] = shape_[from];
    strides[i] = product(shape_, from + 1, shape_.size());
  }
  unsigned moved = rank();
  while (moved > 0 && permutation[moved - 1] == moved - 1) --moved;
  const std::size_t block = product(shape_, moved, shape_.size());
  const std::size_t blocks = numElements() == 0 ? 0 : numElements() / block;
  std::vector<Piece> out;
  std::vector<std::size_t> index(moved, 0);
  for (std::size_t b = 0; b < blocks; ++b) {
    std::size_t from = 0;
    for (unsigned i = 0; i < moved; ++i) from += index[i] * strides[i];
    takeInto(from, from + block, out);
    for (unsigned i = moved; i-- > 0;) {
      if (++index[i] < shape[i]) break;
      index[i] = 0;
    }
  }
  return Tensor(graph_, type_, std::move(shape), std::move(out));
}

Tensor Tensor::dimRoll(unsigned dimIdx, unsigned newIdx) const {
  std::vector<unsigned> permutation;
  for (unsigned i = 0; i < rank(); ++i) {
    if (i != dimIdx) permutation.push_back(i);
  }
  permutation.insert(permutation.begin() + newIdx, dimIdx);
  return dimShuffle(permutation);
}

Tensor Tensor::transpose() const {
  if (rank() != 2) throw poplar_error("Tensor::transpose of rank " + std::to_string(rank()));
  return dimShuffle({1, 0});
}

Tensor Tensor::expand(ArrayRef<std::size_t> indices) const {
  auto shape = shape_;
  std::vector<std::size_t> sorted = indices.cloneAsVector();
  std::sort(sorted.begin(), sorted.end());
  for (auto it = sorted.rbegin(); it != sorted.rend(); ++it) {
    if (*it > shape_.size()) throw poplar_error("Tensor::expand: no such dimension");
    shape.insert(shape.begin() + static_cast<std::ptrdiff_t>(*it), 1);
  }
  return withShape(std::move(shape));
}

Tensor Tensor::broadcast(unsigned N, unsigned dimension) const {
  if (dimension >= rank()) throw poplar_error("Tensor::broadcast: no such dimension");
  return concat(std::vector<Tensor>(N, *this), dimension);
}

Tensor Tensor::squeeze(ArrayRef<std::size_t> dimensions) const {
  std::vector<std::size_t> shape;
  const auto gone = dimensions.cloneAsVector();
  for (std::size_t i = 0; i < shape_.size(); ++i) {
    if (std::find(gone.begin(), gone.end(), i) == gone.end()) {
      shape.push_back(shape_[i]);
    } else if (shape_[i] != 1) {
      throw poplar_error("Tensor::squeeze of a dimension of size " + std::to_string(shape_[i]));
    }
  }
  return withShape(std::move(shape));
}

Tensor Tensor::reverse(unsigned dimension) const {
  std::vector<Tensor> parts;
  for (std::size_t i = dim(dimension); i-- > 0;) parts.push_back(slice(i, i + 1, dimension));
  return parts.empty() ? *this : concat(parts, dimension);
}

Tensor Tensor::reinterpret(const Type& type) const {
  if (type.hostSize() != type_.hostSize()) {
    throw type_error("Tensor::reinterpret of " + type_.toString() + " as " + type.toString());
  }
  Tensor t = *this;
  t.type_ = type;
  return t;
}

bool Tensor::containsAliases() const {
  auto sorted = pieces();
  std::sort(sorted.begin(), sorted.end(), [](const Piece& a, const Piece& b) {
    return a.variable < b.variable || (a.variable == b.variable && a.begin < b.begin);
  });
  for (std::size_t i = 1; i < sorted.size(); ++i) {
    const auto& before = sorted[i - 1];
    if (before.variable == sorted[i].variable && before.begin + before.size > sorted[i].begin) return true;
  }
  return false;
}

bool Tensor::containsConstant() const {
  return std::any_of(pieces().begin(), pieces().end(),
                     [&](const Piece& p) { return graph_->host().variable(p.variable).constant; });
}

bool Tensor::intersectsWith(const Tensor& other) const {
  if (!valid() || !other.valid() || graph_ != other.graph_) return false;
  const auto& mine = pieces();
  for (const auto& piece : other.pieces()) {
    for (const auto& p : mine) {
      if (p.variable == piece.variable && p.begin < piece.begin + piece.size && piece.begin < p.begin + p.size) {
        return true;
      }
    }
  }
  return false;
}

std::vector<Interval> Tensor::getContiguousRegions() const {
  std::vector<Interval> out;
  std::size_t start = 0;
  for (const auto& piece : pieces()) {
    out.emplace_back(start, start + piece.size);
    start += piece.size;
  }
  return out;
}

bool Tensor::operator==(const Tensor& other) const {
  if (graph_ != other.graph_ || shape_ != other.shape_ || type_ != other.type_) return false;
  if (pieces().size() != other.pieces().size()) return false;
  for (std::size_t i = 0; i < pieces().size(); ++i) {
    const auto& a = pieces()[i];
    const auto& b = other.pieces()[i];
    if (a.variable != b.variable || a.begin != b.begin || a.size != b.size) return false;
  }
  return true;
}

std::string Tensor::getDebugStr() const {
  std::ostringstream out;
  out << type_.toString() << shapeToString();
  if (!pieces().empty()) out << " of '" << graph_->host().variable(pieces().front().variable).name << "'";
  return out.str();
}

Tensor concat(ArrayRef<Tensor> tensors, unsigned dimension) {
  if (tensors.empty()) throw poplar_error("concat of no tensors");
  const Tensor& first = tensors[0];
  auto shape = first.shape();
  if (dimension >= shape.size()) throw poplar_error("concat: no such dimension");
  std::size_t total = 0;
  for (const auto& t : tensors) {
    auto other = t.shape();
    if (t.elementType() != first.elementType()) throw type_error("concat of tensors of different types");
    if (other.size() != shape.size()) throw poplar_error("concat of tensors of different ranks");
    total += other[dimension];
    other[dimension] = shape[dimension];
    if (other != shape) throw poplar_error("concat of " + t.shapeToString() + " and " + first.shapeToString());
  }
  const std::size_t outer = product(shape, 0, dimension);
  const std::size_t inner = product(shape, dimension + 1, shape.size());
  std::vector<Tensor::Piece> out;
  for (std::size_t o = 0; o < outer; ++o) {
    for (const auto& t : tensors) {
      const std::size_t row = t.dim(dimension) * inner;
      for (const auto& piece : t.take(o * row, (o + 1) * row)) addPiece(out, piece);
    }
  }
  shape[dimension] = total;
  return Tensor(first.hostGraph(), first.elementType(), std::move(shape), std::move(out));
}

Tensor concat(const Tensor& first, const Tensor& second, unsigned dimension) {
  const std::vector<Tensor> both = {first, second};
  return concat(ArrayRef<Tensor>(both), dimension);
}

Tensor append(const Tensor& first, const Tensor& second, unsigned dimension) {
  return concat(first, second.expand({dimension}), dimension);
}

std::ostream& operator<<(std::ostream& out, const Tensor& tensor) { return out << tensor.getDebugStr(); }

}  // namespace poplar
