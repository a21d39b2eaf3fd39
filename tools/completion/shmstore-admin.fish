# SPDX-License-Identifier: Apache-2.0
# fish completion for shmstore-admin: the words are bash's, from the script that is installed for
# it.
set -g __shmstore_admin_bash \
    (path resolve (status dirname)/../../bash-completion/completions/shmstore-admin)

function __shmstore_admin
    set -l words (commandline -opc) (commandline -ct)
    SHMSTORE_COMPLETION_QUOTES=%s bash --norc -c 'source "$1" && shift && COMP_CWORD=$(($# - 1)) &&
        COMP_WORDS=("$@") && _shmstore_admin && printf "%s\n" "${COMPREPLY[@]}"' \
        bash $__shmstore_admin_bash $words 2>/dev/null
end

complete -c shmstore-admin -f -a '(__shmstore_admin)'
