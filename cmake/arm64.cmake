# SPDX-License-Identifier: Apache-2.0
# Builds for 64-bit Arm by Debian's cross compiler: cmake --toolchain cmake/arm64.cmake
# -DCMAKE_SYSROOT=ROOT, where ROOT has the libraries and headers of an arm64 Debian
# (tests/arm64/run makes one).
set(CMAKE_SYSTEM_NAME Linux)
set(CMAKE_SYSTEM_PROCESSOR aarch64)
set(CMAKE_C_COMPILER aarch64-linux-gnu-gcc)
set(CMAKE_CXX_COMPILER aarch64-linux-gnu-g++)
set(CMAKE_LIBRARY_ARCHITECTURE aarch64-linux-gnu)
set(CMAKE_FIND_ROOT_PATH_MODE_PROGRAM NEVER)
set(CMAKE_FIND_ROOT_PATH_MODE_LIBRARY ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_INCLUDE ONLY)
set(ENV{PKG_CONFIG_SYSROOT_DIR} ${CMAKE_SYSROOT})
set(ENV{PKG_CONFIG_LIBDIR}
  ${CMAKE_SYSROOT}/usr/lib/aarch64-linux-gnu/pkgconfig:${CMAKE_SYSROOT}/usr/share/pkgconfig)
# The interpreter that runs here; the headers are the other one's.
set(Python3_EXECUTABLE /usr/bin/python3)
file(GLOB Python3_INCLUDE_DIR ${CMAKE_SYSROOT}/usr/include/python3.*)
