# SPDX-License-Identifier: Apache-2.0
# What the two wheels hold. shmstored's (SHMSTORE_PROGRAMS) are the programs alone, with the library
# linked in. shmstore's lies below the package's own directory, as that is the only place of which
# all ways to install one agree where it is: the extension, and beside it lib/ and include/.
if(SHMSTORE_PROGRAMS)
  install(TARGETS shmstore-admin shmstored shmstore-actord
    RUNTIME DESTINATION ${SKBUILD_SCRIPTS_DIR} COMPONENT wheel)
  return()
endif()
set(python ${CMAKE_CURRENT_SOURCE_DIR}/libshmstore/python/shmstore)

if(TARGET shmstore_python) # the extension finds the library beside it
  set_target_properties(shmstore_python PROPERTIES INSTALL_RPATH "$ORIGIN/lib")
  install(TARGETS shmstore_python LIBRARY DESTINATION shmstore COMPONENT wheel)
endif()
install(TARGETS shmstore_shared LIBRARY DESTINATION shmstore/lib COMPONENT wheel NAMELINK_SKIP)
# A wheel has no symbolic links: the file bears the name by which it is loaded.
set_target_properties(shmstore_shared PROPERTIES VERSION 0)

install(DIRECTORY ${python}/ DESTINATION shmstore COMPONENT wheel FILES_MATCHING
  PATTERN "*.py" PATTERN "*.pyi" PATTERN "*.yaml" PATTERN "*.json" PATTERN "py.typed"
  PATTERN "__pycache__" EXCLUDE)

# For C: $(python3 -m shmstore._pkgconfig) is what PKG_CONFIG_PATH wants.
install(DIRECTORY libshmstore/include/shmstore DESTINATION shmstore/include COMPONENT wheel
  FILES_MATCHING PATTERN "*.h")
set(SHMSTORE_PC_PREFIX "\${pcfiledir}/../..")
set(SHMSTORE_PC_LIBDIR "\${prefix}/lib")
set(SHMSTORE_PC_INCLUDEDIR "\${prefix}/include")
configure_file(cmake/shmstore.pc.in ${PROJECT_BINARY_DIR}/shmstore.pc.dynamic @ONLY)
file(READ ${PROJECT_BINARY_DIR}/shmstore.pc.dynamic text)
string(REPLACE "-lshmstore" "-l:libshmstore.so.0" text "${text}")
file(WRITE ${PROJECT_BINARY_DIR}/shmstore.pc "${text}")
install(FILES ${PROJECT_BINARY_DIR}/shmstore.pc DESTINATION shmstore/lib/pkgconfig COMPONENT wheel)
