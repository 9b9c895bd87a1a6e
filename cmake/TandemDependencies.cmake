# Everything comes from Debian's packages (scripts/setup); a newer libtorch by CMAKE_PREFIX_PATH.
find_package(Threads REQUIRED)
find_package(fmt REQUIRED)
find_package(spdlog REQUIRED)
find_package(nlohmann_json REQUIRED)
find_package(CLI11 REQUIRED)
find_package(OpenSSL REQUIRED COMPONENTS Crypto SSL)
find_package(ZLIB REQUIRED)
find_package(JPEG REQUIRED)
find_package(PNG REQUIRED)
find_package(Protobuf REQUIRED)
find_package(gRPC CONFIG REQUIRED)
find_package(Gloo REQUIRED)
find_package(Torch REQUIRED)

# Engines of the communicator that are there if their libraries are.
set(MPI_CXX_SKIP_MPICXX ON)
find_package(MPI QUIET COMPONENTS CXX)
option(TANDEM_WITH_MPI "Build the engine \"mpi\" (Debian: libopenmpi-dev)" ${MPI_CXX_FOUND})
if(TANDEM_WITH_MPI)
  find_package(MPI REQUIRED COMPONENTS CXX)
endif()
find_package(NCCL QUIET)
option(TANDEM_WITH_NCCL "Build the engine \"nccl\" (CUDA toolkit and NCCL)" ${NCCL_FOUND})
if(TANDEM_WITH_NCCL)
  find_package(NCCL REQUIRED)
endif()

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
