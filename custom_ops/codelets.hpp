// Where generated codelets lie. Ops carry their hash; the folder is told to the library once, by its loader.
#pragma once

#include <string>

namespace snn_ipu {

/// The file of a codelet; throws std::runtime_error that says what to do where it is missing.
std::string codeletPath(const std::string& hash);

}  // namespace snn_ipu

/// Folders to look in, separated by colons.
extern "C" void snn_ipu_codelet_folders(const char* folders);
