# SPDX-License-Identifier: Apache-2.0
# Flags for every C target of the tree: shmstore_flags is linked PRIVATE.
find_package(Threads REQUIRED)
set(CMAKE_C_STANDARD 17)
set(CMAKE_C_STANDARD_REQUIRED ON)
set(CMAKE_C_EXTENSIONS ON)
set(CMAKE_C_VISIBILITY_PRESET hidden)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
if(SHMSTORE_LINKED)
  include(cmake/linked.cmake)
else()
  find_package(PkgConfig REQUIRED)
  pkg_check_modules(XXHASH REQUIRED IMPORTED_TARGET libxxhash)
  pkg_check_modules(ZSTD REQUIRED IMPORTED_TARGET libzstd)
  pkg_check_modules(LIBURING REQUIRED IMPORTED_TARGET liburing)

  # XXH3 by what the processor at hand has: in libxxhash where that was built with it.
  include(CheckSymbolExists)
  set(CMAKE_REQUIRED_INCLUDES ${XXHASH_INCLUDE_DIRS})
  set(CMAKE_REQUIRED_LIBRARIES ${XXHASH_LINK_LIBRARIES})
  check_symbol_exists(XXH3_128bits_update_dispatch xxh_x86dispatch.h SHMSTORE_XXH3_DISPATCH)
  unset(CMAKE_REQUIRED_INCLUDES)
  unset(CMAKE_REQUIRED_LIBRARIES)
endif()

if(NOT CMAKE_BUILD_TYPE)
  set(CMAKE_BUILD_TYPE Release)
endif()

add_library(shmstore_flags INTERFACE)
target_compile_definitions(shmstore_flags
  INTERFACE _GNU_SOURCE $<$<BOOL:${SHMSTORE_XXH3_DISPATCH}>:SHMSTORE_XXH3_DISPATCH>)
target_compile_options(shmstore_flags INTERFACE
  -Wall -Wextra -Wshadow -Wundef -Wconversion -Wcast-align -Wcast-qual -Wformat=2
  -Wstrict-prototypes
  -Wmissing-prototypes -Wvla -Wswitch-enum -Wimplicit-fallthrough -Wnull-dereference -Wwrite-strings
  -Wno-missing-field-initializers # what is left out of a table's row is zero
  -fno-strict-aliasing -fstack-protector-strong -fstack-clash-protection)
if(CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64")
  target_compile_options(shmstore_flags INTERFACE -fcf-protection)
endif()
if(SHMSTORE_WERROR)
  target_compile_options(shmstore_flags INTERFACE -Werror)
endif()
if(SHMSTORE_SANITIZE)
  target_compile_options(shmstore_flags INTERFACE -fsanitize=${SHMSTORE_SANITIZE}
    -fno-omit-frame-pointer -g1)
  if(SHMSTORE_SANITIZE MATCHES "undefined")
    # What was found ends the program, as tests want it; and as nothing has to go on after it, it
    # compiles in three quarters of the time.
    target_compile_options(shmstore_flags INTERFACE -fno-sanitize-recover=undefined)
  endif()
  target_link_options(shmstore_flags INTERFACE -fsanitize=${SHMSTORE_SANITIZE})
else()
  if(NOT CMAKE_BUILD_TYPE STREQUAL "Debug")
    # Level 3 is gcc 12's.
    set(level 3)
    if(CMAKE_C_COMPILER_ID STREQUAL GNU AND CMAKE_C_COMPILER_VERSION VERSION_LESS 12)
      set(level 2)
    endif()
    target_compile_options(shmstore_flags INTERFACE -U_FORTIFY_SOURCE -D_FORTIFY_SOURCE=${level})
  endif()
  # All symbols are bound at the start, so calls need no stub to bind them: a cycle of small objects
  # between two processes, in which each call meets cold caches, takes 2 % less.
  target_compile_options(shmstore_flags INTERFACE -fno-plt)
  # Each function begins a cache line. Else a change elsewhere that moves a function by some bytes
  # makes the shortest calls up to a quarter slower or faster.
  target_compile_options(shmstore_flags INTERFACE -falign-functions=64)
  target_link_options(shmstore_flags INTERFACE -Wl,-z,relro,-z,now)
endif()
