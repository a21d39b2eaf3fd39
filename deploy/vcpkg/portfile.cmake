# SPDX-License-Identifier: Apache-2.0
# The library, of this clone: vcpkg install shmstore --overlay-ports=deploy/vcpkg
get_filename_component(SOURCE_PATH "${CURRENT_PORT_DIR}/../.." ABSOLUTE)
vcpkg_cmake_configure(SOURCE_PATH "${SOURCE_PATH}"
  OPTIONS -DSHMSTORE_PYTHON=OFF -DSHMSTORE_PROGRAMS=OFF -DSHMSTORE_TESTS=OFF -DSHMSTORE_BENCH=OFF
  -DSHMSTORE_SYSTEMD=OFF)
vcpkg_cmake_install()
vcpkg_cmake_config_fixup(CONFIG_PATH lib/cmake/shmstore)
vcpkg_fixup_pkgconfig()
file(REMOVE_RECURSE "${CURRENT_PACKAGES_DIR}/debug/include" "${CURRENT_PACKAGES_DIR}/debug/share")
vcpkg_install_copyright(FILE_LIST "${SOURCE_PATH}/LICENSE")
