// Host model of Poplar, not Poplar: see tests/host_sdk/README.md.
#pragma once

#include <initializer_list>
#include <map>
#include <string>
#include <utility>

namespace poplar {

class OptionFlags {
 public:
  using OptionFlag = std::pair<const std::string, std::string>;
  using initializer_list = std::initializer_list<OptionFlag>;

  OptionFlags() = default;
  OptionFlags(initializer_list flags) { set(flags); }
  void set(initializer_list flags) {
    for (const auto& flag : flags) flags_[flag.first] = flag.second;
  }
  void set(const std::string& option, const std::string& value) { flags_[option] = value; }
  const std::string& at(const std::string& option) const { return flags_.at(option); }
  void clear() { flags_.clear(); }
  std::map<std::string, std::string>::const_iterator begin() const { return flags_.begin(); }
  std::map<std::string, std::string>::const_iterator end() const { return flags_.end(); }

 private:
  std::map<std::string, std::string> flags_;
};

}  // namespace poplar
