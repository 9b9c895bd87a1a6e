# Everything comes from Debian's packages (scripts/setup); a newer libtorch by CMAKE_PREFIX_PATH.
find_package(Threads REQUIRED)
find_package(fmt REQUIRED)
find_package(spdlog REQUIRED)
find_package(nlohmann_json REQUIRED)
find_package(CLI11 REQUIRED)
find_package(OpenSSL REQUIRED COMPONENTS Crypto SSL)
find_package(ZLIB REQUIRED)
find_package(Protobuf REQUIRED)
find_package(gRPC CONFIG REQUIRED)
find_package(Gloo REQUIRED)
find_package(Torch REQUIRED)
if(TANDEM_BUILD_TESTS)
  find_package(GTest REQUIRED)
endif()

# A rebuild on a machine that has ccache costs seconds, also in another clone. The precompiled header needs the sloppiness:
# GCC records its time stamp, which says nothing about its contents.
find_program(CCACHE_PROGRAM ccache)
if(CCACHE_PROGRAM AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
  set(CMAKE_CXX_COMPILER_LAUNCHER
      ${CMAKE_COMMAND} -E env
      CCACHE_BASEDIR=${CMAKE_SOURCE_DIR}
      CCACHE_SLOPPINESS=pch_defines,time_macros,include_file_mtime,include_file_ctime
      ${CCACHE_PROGRAM})
endif()
