# SPDX-License-Identifier: Apache-2.0
# What `cmake --install` puts where: headers, libraries, the pkg-config file and the CMake package.
# Tools, man pages and the Python package install from their own directories. All paths are relative
# to the prefix, so that --prefix at install time and DESTDIR work.
include(CMakePackageConfigHelpers)

set(SHMSTORE_CMAKE_DIR ${CMAKE_INSTALL_LIBDIR}/cmake/shmstore)

install(TARGETS shmstore_shared EXPORT shmstoreTargets LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
# An export of its own: only those who link it need its dependencies.
install(TARGETS shmstore_static EXPORT shmstoreStaticTargets
  ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR})
install(DIRECTORY libshmstore/include/shmstore DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}
  FILES_MATCHING PATTERN "*.h")

install(EXPORT shmstoreTargets NAMESPACE shmstore:: DESTINATION ${SHMSTORE_CMAKE_DIR})
install(EXPORT shmstoreStaticTargets NAMESPACE shmstore:: DESTINATION ${SHMSTORE_CMAKE_DIR})
configure_package_config_file(cmake/shmstoreConfig.cmake.in
  ${PROJECT_BINARY_DIR}/shmstoreConfig.cmake
  INSTALL_DESTINATION ${SHMSTORE_CMAKE_DIR})
write_basic_package_version_file(${PROJECT_BINARY_DIR}/shmstoreConfigVersion.cmake
  COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/shmstoreConfig.cmake
  ${PROJECT_BINARY_DIR}/shmstoreConfigVersion.cmake
  DESTINATION ${SHMSTORE_CMAKE_DIR})

# From the .pc file's directory up to the prefix: the file says nothing that
# a later --prefix makes wrong.
set(SHMSTORE_PC_DIR ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
if(IS_ABSOLUTE ${CMAKE_INSTALL_LIBDIR} OR IS_ABSOLUTE ${CMAKE_INSTALL_INCLUDEDIR})
  set(SHMSTORE_PC_PREFIX ${CMAKE_INSTALL_PREFIX})
  set(SHMSTORE_PC_LIBDIR ${CMAKE_INSTALL_FULL_LIBDIR})
  set(SHMSTORE_PC_INCLUDEDIR ${CMAKE_INSTALL_FULL_INCLUDEDIR})
else()
  file(RELATIVE_PATH up /prefix/${SHMSTORE_PC_DIR} /prefix)
  string(REGEX REPLACE "/$" "" up "${up}")
  set(SHMSTORE_PC_PREFIX "\${pcfiledir}/${up}")
  set(SHMSTORE_PC_LIBDIR "\${prefix}/${CMAKE_INSTALL_LIBDIR}")
  set(SHMSTORE_PC_INCLUDEDIR "\${prefix}/${CMAKE_INSTALL_INCLUDEDIR}")
endif()
configure_file(cmake/shmstore.pc.in ${PROJECT_BINARY_DIR}/shmstore.pc @ONLY)
install(FILES ${PROJECT_BINARY_DIR}/shmstore.pc DESTINATION ${SHMSTORE_PC_DIR})

# An installed program finds the library of its own prefix. A distribution's package does
# without (CMAKE_SKIP_INSTALL_RPATH).
if(TARGET shmstore-admin AND NOT IS_ABSOLUTE ${CMAKE_INSTALL_LIBDIR}
  AND NOT IS_ABSOLUTE ${CMAKE_INSTALL_BINDIR})
  file(RELATIVE_PATH to_lib /prefix/${CMAKE_INSTALL_BINDIR} /prefix/${CMAKE_INSTALL_LIBDIR})
  set_target_properties(shmstore-admin PROPERTIES INSTALL_RPATH "$ORIGIN/${to_lib}")
endif()
if(TARGET shmstored AND NOT IS_ABSOLUTE ${CMAKE_INSTALL_LIBDIR}
  AND NOT IS_ABSOLUTE ${CMAKE_INSTALL_SBINDIR})
  file(RELATIVE_PATH to_lib /prefix/${CMAKE_INSTALL_SBINDIR} /prefix/${CMAKE_INSTALL_LIBDIR})
  set_target_properties(shmstored shmstore-actord PROPERTIES INSTALL_RPATH "$ORIGIN/${to_lib}")
endif()

# An ordinary user's PATH has no sbin, and whoever runs a daemon of one's own is one.
if(TARGET shmstored AND NOT IS_ABSOLUTE ${CMAKE_INSTALL_BINDIR}
  AND NOT IS_ABSOLUTE ${CMAKE_INSTALL_SBINDIR})
  file(RELATIVE_PATH to_sbin /prefix/${CMAKE_INSTALL_BINDIR} /prefix/${CMAKE_INSTALL_SBINDIR})
  foreach(program shmstored shmstore-actord)
    install(CODE "
      set(link \"\$ENV{DESTDIR}\${CMAKE_INSTALL_PREFIX}/${CMAKE_INSTALL_BINDIR}/${program}\")
      message(STATUS \"Installing: \${link}\")
      file(CREATE_LINK ${to_sbin}/${program} \"\${link}\" SYMBOLIC)
      list(APPEND CMAKE_INSTALL_MANIFEST_FILES \"\${link}\")")
  endforeach()
endif()

file(GLOB pages CONFIGURE_DEPENDS docs/man/*.1)
install(FILES ${pages} DESTINATION ${CMAKE_INSTALL_MANDIR}/man1)
file(GLOB pages CONFIGURE_DEPENDS docs/man/*.3)
install(FILES ${pages} DESTINATION ${CMAKE_INSTALL_MANDIR}/man3)
# One page per group of functions, made of the headers that are installed, and one link for each
# function. By no Python of an environment that may be gone tomorrow.
find_program(SHMSTORE_MANUAL_PYTHON python3 PATHS /usr/bin NO_DEFAULT_PATH)
if(SHMSTORE_MANUAL_PYTHON)
  install(CODE "
    set(manual \"\$ENV{DESTDIR}\${CMAKE_INSTALL_PREFIX}/${CMAKE_INSTALL_MANDIR}/man3\")
    execute_process(COMMAND \"${SHMSTORE_MANUAL_PYTHON}\" -B
      \"${PROJECT_SOURCE_DIR}/docs/man/headers\" \"\${manual}\"
      OUTPUT_VARIABLE files RESULT_VARIABLE status)
    if(NOT status EQUAL 0)
      message(FATAL_ERROR \"docs/man/headers failed: \${status}\")
    endif()
    message(STATUS \"Installing: \${manual}: a page for each function\")
    string(REGEX REPLACE \"\n+\" \";\" files \"\${files}\")
    list(APPEND CMAKE_INSTALL_MANIFEST_FILES \${files})")
endif()
file(GLOB pages CONFIGURE_DEPENDS docs/man/*.7)
install(FILES ${pages} DESTINATION ${CMAKE_INSTALL_MANDIR}/man7)
file(GLOB pages CONFIGURE_DEPENDS docs/man/*.5)
install(FILES ${pages} DESTINATION ${CMAKE_INSTALL_MANDIR}/man5)
file(GLOB pages CONFIGURE_DEPENDS docs/man/*.8)
install(FILES ${pages} DESTINATION ${CMAKE_INSTALL_MANDIR}/man8)
# The pages lie to each other as in the source tree, so that their links lead somewhere.
install(FILES README.md CHANGELOG.md CONTRIBUTING.md LICENSE DESTINATION ${CMAKE_INSTALL_DOCDIR})
install(DIRECTORY docs DESTINATION ${CMAKE_INSTALL_DOCDIR} FILES_MATCHING PATTERN "*.md"
  PATTERN "*.svg" PATTERN "*.png" PATTERN man EXCLUDE)

# The loader finds libraries of /usr and /usr/local through its cache. A package (DESTDIR)
# has its own trigger for that.
install(CODE "
  if(CMAKE_INSTALL_PREFIX MATCHES \"^/usr(/local)?/?$\" AND \"\$ENV{DESTDIR}\" STREQUAL \"\"
      AND EXISTS /sbin/ldconfig)
    execute_process(COMMAND /sbin/ldconfig RESULT_VARIABLE status ERROR_QUIET)
    if(NOT status EQUAL 0)
      message(WARNING \"/sbin/ldconfig failed: \"
        \"programs may not find libshmstore.so.0 until it has been run as root\")
    endif()
  endif()")
