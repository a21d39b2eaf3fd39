# SPDX-License-Identifier: Apache-2.0
# The code in rooms (docs/architecture.md). A room is a folder and an object library. Its files see
# their own folder, the rooms that it names, and what those see: an include that points up does not
# compile. tests/layers reads the calls of room() and checks the same of the symbols.
#
#   room(HOUSE NAME [BELOW...])       the folder NAME is a room of HOUSE, and may use the rooms
#                                     BELOW, which stand before it
#   house(HOUSE OBJECTS DIRECTORIES)  sets these variables to the objects and the
#                                     folders of all rooms of HOUSE
#
# A directory sets these variables before it calls room(): room_libraries, what every room links;
# room_sees, folders of other houses that every room may include from; room_door, a header that the
# compiler puts in front of every file (empty: none).
function(room house name)
  set(here ${CMAKE_CURRENT_SOURCE_DIR})
  set(target ${house}_${name})
  file(GLOB sources CONFIGURE_DEPENDS ${here}/${name}/*.c)
  add_library(${target} OBJECT ${sources})
  target_include_directories(${target} PUBLIC ${here}/${name} PRIVATE ${room_sees})
  target_link_libraries(${target} PRIVATE shmstore_flags ${room_libraries} Threads::Threads)
  if(SHMSTORE_FUZZ) # which fuzzers follow; in the tests' own code it would only take time
    target_compile_options(${target} PRIVATE -fsanitize=fuzzer-no-link)
  endif()
  if(room_door)
    target_compile_options(${target} PRIVATE -include ${room_door})
    set_source_files_properties(${sources} PROPERTIES OBJECT_DEPENDS ${room_door})
  endif()
  foreach(below ${ARGN})
    target_link_libraries(${target} PUBLIC ${house}_${below})
  endforeach()
  set_property(GLOBAL APPEND PROPERTY ROOMS_OF_${house} ${name})
endfunction()

function(house house ret_objects ret_directories)
  get_property(rooms GLOBAL PROPERTY ROOMS_OF_${house})
  list(TRANSFORM rooms REPLACE "(.+)" "$<TARGET_OBJECTS:${house}_\\1>" OUTPUT_VARIABLE objects)
  list(TRANSFORM rooms PREPEND ${CMAKE_CURRENT_SOURCE_DIR}/ OUTPUT_VARIABLE directories)
  set(${ret_objects} ${objects} PARENT_SCOPE)
  set(${ret_directories} ${directories} PARENT_SCOPE)
endfunction()
