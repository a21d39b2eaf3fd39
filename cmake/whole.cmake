# SPDX-License-Identifier: Apache-2.0
# An installation is whole or does not begin. The target "product" is what `cmake --install`
# installs and nothing else: without tests and benchmarks. This file is included before the first
# install() command: its check runs before the first file is copied.
add_custom_target(product)
set(SHMSTORE_PRODUCT_LIST ${PROJECT_BINARY_DIR}/product-$<CONFIG>.txt)

install(CODE "
  file(STRINGS \"${SHMSTORE_PRODUCT_LIST}\" files)
  foreach(file IN LISTS files)
    if(NOT EXISTS \"\${file}\")
      message(FATAL_ERROR \"nothing was installed: \${file} is not built yet; \"
        \"build it first with: cmake --build ${PROJECT_BINARY_DIR} --target product\")
    endif()
  endforeach()")

# Names the targets that are installed; those of parts that were switched off are left out.
function(shmstore_whole)
  set(files "")
  foreach(target IN LISTS ARGN)
    if(TARGET ${target})
      add_dependencies(product ${target})
      string(APPEND files "$<TARGET_FILE:${target}>\n")
    endif()
  endforeach()
  file(GENERATE OUTPUT ${SHMSTORE_PRODUCT_LIST} CONTENT "${files}")
endfunction()
