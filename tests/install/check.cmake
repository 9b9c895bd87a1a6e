# Installs tandem into a folder of its own, then builds and runs a program outside the tree against it.
#   cmake -DBUILD=... -DPROJECT=... -DWORK=... -P check.cmake
function(run)
  execute_process(COMMAND ${ARGN} RESULT_VARIABLE result)
  if(NOT result EQUAL 0)
    message(FATAL_ERROR "failed: ${ARGN}")
  endif()
endfunction()

file(REMOVE_RECURSE ${WORK})
run(${CMAKE_COMMAND} --install ${BUILD} --prefix ${WORK}/installed)
file(COPY ${PROJECT}/ DESTINATION ${WORK}/source)
run(${CMAKE_COMMAND} -G Ninja -S ${WORK}/source -B ${WORK}/build -DCMAKE_BUILD_TYPE=Debug
    -DCMAKE_PREFIX_PATH=${WORK}/installed -DCMAKE_CXX_FLAGS=${FLAGS})
run(${CMAKE_COMMAND} --build ${WORK}/build)
run(${WORK}/build/uses_tandem)
file(REMOVE_RECURSE ${WORK})
