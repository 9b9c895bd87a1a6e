# Flags and helpers that every target shares. Torch sources reuse one precompiled header, so their flags must
# be the same to the letter; -Winvalid-pch says when they are not.

add_library(tandem_flags INTERFACE)
target_compile_options(tandem_flags INTERFACE -Wall -Wextra -Winvalid-pch $<$<BOOL:${TANDEM_WERROR}>:-Werror>)
target_include_directories(tandem_flags INTERFACE ${CMAKE_SOURCE_DIR}/src)

# torch's own package adds its include folders as ordinary ones; as system ones its warnings stay its own.
add_library(tandem_torch INTERFACE)
target_link_libraries(tandem_torch INTERFACE ${TORCH_LIBRARIES} Threads::Threads)
target_include_directories(tandem_torch SYSTEM INTERFACE ${TORCH_INCLUDE_DIRS})

function(tandem_configure_libraries)
  target_include_directories(tandem_core PUBLIC $<BUILD_INTERFACE:${CMAKE_CURRENT_SOURCE_DIR}/include>
                                                $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>)
  target_compile_features(tandem_core PUBLIC cxx_std_20)
  target_link_libraries(tandem_core PUBLIC fmt::fmt Threads::Threads
                        PRIVATE $<BUILD_INTERFACE:tandem_flags> $<BUILD_INTERFACE:nlohmann_json::nlohmann_json> spdlog::spdlog
                                OpenSSL::Crypto)
  target_link_libraries(tandem PUBLIC tandem_core $<BUILD_INTERFACE:tandem_torch> $<INSTALL_INTERFACE:tandem::torch>
                        PRIVATE $<BUILD_INTERFACE:tandem_flags> ZLIB::ZLIB)
  target_precompile_headers(tandem PRIVATE <torch/torch.h>)
  # Loading the precompiled header is most of what a small source costs, so several are compiled as one.
  set_target_properties(tandem PROPERTIES UNITY_BUILD ${TANDEM_UNITY_BUILD} UNITY_BUILD_BATCH_SIZE 12)
endfunction()

# A program that sees torch: an example, a benchmark or a test.
function(tandem_torch_executable name)
  add_executable(${name} ${ARGN})
  target_link_libraries(${name} PRIVATE tandem tandem_flags)
  target_precompile_headers(${name} REUSE_FROM tandem)
endfunction()
