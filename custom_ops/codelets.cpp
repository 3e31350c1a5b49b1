#include "codelets.hpp"

#include <fstream>
#include <sstream>
#include <stdexcept>

namespace {
std::string& codeletFolders() {
  static std::string folders;
  return folders;
}
}  // namespace

std::string snn_ipu::codeletPath(const std::string& hash) {
  std::istringstream folders(codeletFolders());
  for (std::string folder; std::getline(folders, folder, ':');) {
    const std::string path = folder + "/" + hash + ".cpp";
    if (std::ifstream(path).good()) return path;
  }
  throw std::runtime_error("snn_ipu: codelet " + hash + " is in none of the folders '" + codeletFolders() +
                           "'. Set SNN_IPU_CACHE_DIR to the folder it was generated in, or trace the model again.");
}

void snn_ipu_codelet_folders(const char* folders) { codeletFolders() = folders; }
