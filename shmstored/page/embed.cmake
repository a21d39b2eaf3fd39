# SPDX-License-Identifier: Apache-2.0
# cmake -DSOURCE=<this directory> -DOUTPUT=<web_page.c> -P embed.cmake: joins index.html, page.css
# and the scripts to one page, and writes it as C, with its policy: the browser runs and applies
# what has these hashes, and fetches from where the page came from.
function(base64_of_hex hex ret)
  set(alphabet ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/)
  string(LENGTH "${hex}" length)
  set(text "")
  set(at 0)
  while(at LESS length)
    string(SUBSTRING "${hex}0000" ${at} 6 group)
    math(EXPR left "${length} - ${at}")
    math(EXPR bits "0x${group}")
    foreach(shift 18 12 6 0)
      # 2 hex digits left are 8 bits: 2 characters of text; 4 are 3 of them
      if((left LESS 6 AND shift EQUAL 0) OR (left LESS 4 AND shift EQUAL 6))
        string(APPEND text "=")
      else()
        math(EXPR index "(${bits} >> ${shift}) & 63")
        string(SUBSTRING ${alphabet} ${index} 1 character)
        string(APPEND text ${character})
      endif()
    endforeach()
    math(EXPR at "${at} + 6")
  endwhile()
  set(${ret} "${text}" PARENT_SCOPE)
endfunction()

foreach(part index.html page.css)
  file(READ ${SOURCE}/${part} ${part})
endforeach()
set(page.js "'use strict';\n(() => {\n")
foreach(part basics.js charts.js host.js tasks.js page.js)
  file(READ ${SOURCE}/${part} text)
  string(APPEND page.js "${text}")
endforeach()
string(APPEND page.js "})();\n")
set(page "${index.html}")
set(link "<link rel=\"stylesheet\" href=\"page.css\">")
set(script "<script src=\"page.js\"></script>")
foreach(place "${link}" "${script}")
  string(FIND "${page}" "${place}" found)
  if(found EQUAL -1)
    message(FATAL_ERROR "index.html: no ${place}")
  endif()
endforeach()
string(REPLACE "${link}" "<style>${page.css}</style>" page "${page}")
string(REPLACE "${script}" "<script>${page.js}</script>" page "${page}")

string(SHA256 style_hash "${page.css}")
string(SHA256 script_hash "${page.js}")
string(SHA256 page_hash "${page}")
base64_of_hex(${style_hash} style)
base64_of_hex(${script_hash} script)
string(SUBSTRING ${page_hash} 0 32 etag)

file(WRITE ${OUTPUT}.html "${page}")
file(READ ${OUTPUT}.html bytes HEX)
string(REGEX REPLACE "([0-9a-f][0-9a-f])" "0x\\1," bytes "${bytes}")
string(REGEX REPLACE
  "(................................................................................)" "\\1\n"
  bytes "${bytes}")
file(WRITE ${OUTPUT} "/* Made by page/embed.cmake. */
#include \"report.h\"

const unsigned char web_page[] = {
${bytes}
};
const size_t web_page_size = sizeof(web_page);
const char web_page_etag[] = \"\\\"${etag}\\\"\";
const char web_page_policy[] =
	\"default-src 'none'; style-src 'sha256-${style}'; script-src 'sha256-${script}'; \"
	\"connect-src 'self'; img-src 'self' data:; \"
	\"base-uri 'none'; form-action 'none'; frame-ancestors 'none'\";
")
