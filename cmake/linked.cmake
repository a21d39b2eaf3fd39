# SPDX-License-Identifier: Apache-2.0
# xxHash, zstd, liburing and uthash out of SHMSTORE_LINKED, a folder with the sources of each under
# its name, in the place of those that pkg-config finds: deploy/wheels links them into the library.
set(SHMSTORE_XXH3_DISPATCH OFF)
set(xxhash ${SHMSTORE_LINKED}/xxhash/xxhash.c)
file(GLOB zstd ${SHMSTORE_LINKED}/zstd/lib/common/*.c ${SHMSTORE_LINKED}/zstd/lib/compress/*.c
  ${SHMSTORE_LINKED}/zstd/lib/decompress/*.c)
set(liburing setup queue register syscall)
list(TRANSFORM liburing REPLACE "(.+)" "${SHMSTORE_LINKED}/liburing/src/\\1.c")
if(CMAKE_SYSTEM_PROCESSOR STREQUAL x86_64)
  set(SHMSTORE_XXH3_DISPATCH ON)
  list(APPEND xxhash ${SHMSTORE_LINKED}/xxhash/xxh_x86dispatch.c)
  enable_language(ASM)
  list(APPEND zstd ${SHMSTORE_LINKED}/zstd/lib/decompress/huf_decompress_amd64.S)
endif()
execute_process(COMMAND ./configure --use-libc --cc=${CMAKE_C_COMPILER}
  WORKING_DIRECTORY ${SHMSTORE_LINKED}/liburing
  OUTPUT_QUIET COMMAND_ERROR_IS_FATAL ANY)
set(includes_xxhash xxhash)
set(includes_zstd zstd/lib)
set(includes_liburing liburing/src/include)
foreach(name xxhash zstd liburing)
  add_library(linked_${name} STATIC ${${name}})
  target_include_directories(linked_${name} SYSTEM PUBLIC ${SHMSTORE_LINKED}/${includes_${name}}
    ${SHMSTORE_LINKED}/uthash/src)
  set_target_properties(linked_${name} PROPERTIES C_VISIBILITY_PRESET default
    POSITION_INDEPENDENT_CODE ON)
  string(TOUPPER ${name} target)
  add_library(PkgConfig::${target} ALIAS linked_${name})
endforeach()
# The strategies of levels 1 to 4 alone, as zstd's ZSTD_LIB_EXCLUDE_COMPRESSORS_GREEDY_AND_UP builds
# it: a fourth of its code less. Higher levels compress as level 4.
foreach(strategy GREEDY LAZY LAZY2 BTLAZY2 BTOPT BTULTRA)
  target_compile_definitions(linked_zstd PRIVATE ZSTD_EXCLUDE_${strategy}_BLOCK_COMPRESSOR)
endforeach()
target_compile_definitions(linked_liburing PRIVATE _GNU_SOURCE LIBURING_INTERNAL)
target_compile_options(linked_liburing PRIVATE -include ${SHMSTORE_LINKED}/liburing/config-host.h)
